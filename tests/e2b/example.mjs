// examples/agent/agent.mjs as it is, beside the SDK that it imports, with the stand-in for a model.
import { spawn } from 'node:child_process'
import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Sandbox } from 'e2b'
import { assert, scenario, until } from './scenario.mjs'

scenario('an agent in thirty lines', async t => {
  const from = process.env.EXAMPLES, folder = mkdtempSync(join(tmpdir(), 'zwinger-agent.'))
  t.atEnd(async () => rmSync(folder, { recursive: true }))
  const model = spawn('python3', [join(from, 'agent/model.py'), join(folder, 'port')], { stdio: 'inherit' })
  t.atEnd(async () => model.kill())
  await until(() => existsSync(join(folder, 'port')), 'the model')
  copyFileSync(join(from, 'agent/agent.mjs'), 'agent.mjs')
  const MODEL_URL = `http://127.0.0.1:${readFileSync(join(folder, 'port'), 'utf8').trim()}`
  const agent = spawn('node', ['agent.mjs', 'What is the mean of 3, 5 and 10?'], { env: { ...process.env, MODEL_URL }, stdio: ['ignore', 'pipe', 'inherit'] })
  let said = ''
  agent.stdout.on('data', x => (said += x))
  assert.equal(await new Promise(good => agent.on('close', good)), 0)
  assert.equal(said, 'The mean of the 3 numbers is 6.0.\n')
  const left = await Sandbox.list({ query: { state: ['running'] } }).nextItems()
  assert.deepEqual(left.filter(s => s.templateId === 'code-interpreter-v1' && s.endAt - s.startedAt > 500000 && s.endAt - s.startedAt < 700000), [])
})
