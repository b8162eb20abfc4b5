// Streams that break off in the middle, at either end.
import http from 'node:http'
import { Sandbox } from '@e2b/code-interpreter'
import { assert, rejects, sandbox, scenario, until, url } from './scenario.mjs'

/** A request whose connection the test can break: its response when the head has come. */
function ask(s, method, path, headers = {}) {
  return http.request(url + path, { method, agent: false, headers: { 'E2b-Sandbox-Id': s.sandboxId, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': s.envdAccessToken, ...headers } })
}

scenario('a client that is gone does not end its command', async t => {
  const s = await sandbox(t, Sandbox)
  const body = Buffer.from(JSON.stringify({ process: { cmd: '/bin/sh', args: ['-c', 'seq 1 300000; sleep 600'] }, tag: 'left' }))
  const head = Buffer.alloc(5)
  head.writeUInt32BE(body.length, 1)
  await new Promise((good, bad) => {
    const q = ask(s, 'POST', '/process.Process/Start', { 'Content-Type': 'application/connect+json', 'Connect-Timeout-Ms': '600000' })
    q.on('response', r => r.once('data', () => (q.destroy(), good())))
    q.on('error', bad)
    q.end(Buffer.concat([head, body]))
  })
  const [left] = await s.commands.list()
  assert.equal(left.tag, 'left')
  const again = await s.commands.connect(left.pid)
  assert.equal(await again.kill(), true)
  await rejects(again.wait(), 'CommandExitError')
  assert.equal((await s.commands.run('echo fine')).stdout, 'fine\n')
})

scenario('a handle that lets go, and another that follows', async t => {
  const s = await sandbox(t, Sandbox)
  let first = '', second = ''
  const one = await s.commands.run('while read line; do echo "got $line"; done', { background: true, stdin: true, onStdout: x => (first += x) })
  await one.sendStdin('a\n')
  await until(() => first === 'got a\n', first)
  await one.disconnect()
  const two = await s.commands.connect(one.pid, { onStdout: x => (second += x) })
  await two.sendStdin('b\n')
  await until(() => second === 'got b\n', second)
  await two.closeStdin()
  assert.equal((await two.wait()).exitCode, 0)
  assert.equal(first, 'got a\n')
})

scenario('a terminal is left and taken up again', async t => {
  const s = await sandbox(t, Sandbox)
  let seen = ''
  const options = { cols: 80, rows: 24, onData: d => (seen += new TextDecoder().decode(d)), timeoutMs: 0 }
  const p = await s.pty.create(options)
  await p.disconnect()
  const again = await s.pty.connect(p.pid, { onData: options.onData })
  await s.pty.sendInput(p.pid, new TextEncoder().encode('echo $((40 + 2))\n'))
  await until(() => /\b42\r\n/.test(seen), seen)
  assert.equal(await s.pty.kill(p.pid), true)
  await rejects(again.wait(), 'CommandExitError')
})

scenario('an upload that breaks off leaves what was there', async t => {
  const s = await sandbox(t, Sandbox)
  await s.files.write('d/kept', 'before')
  for (const path of ['d/kept', 'd/new']) {
    await new Promise(good => {
      const q = ask(s, 'POST', `/files?path=${path}`, { 'Content-Type': 'application/octet-stream' })
      q.on('error', good)
      q.on('close', good)
      q.write(Buffer.alloc(1 << 20), () => setTimeout(() => q.destroy(), 100))
    })
  }
  await until(async () => (await s.files.list('d')).length === 1, 'the end of what was begun')
  assert.equal(await s.files.read('d/kept'), 'before')
})

scenario('a download that breaks off', async t => {
  const s = await sandbox(t, Sandbox)
  await s.commands.run('head -c 100M /dev/zero > big')
  const reader = (await s.files.read('big', { format: 'stream' })).getReader()
  assert((await reader.read()).value.length > 0)
  await reader.cancel()
  await new Promise(good => {
    const q = ask(s, 'GET', '/files?path=big')
    q.on('response', r => r.once('data', () => (q.destroy(), good())))
    q.end()
  })
  assert.equal((await s.files.read('big', { format: 'bytes' })).length, 100 << 20)
})

scenario('a sandbox is killed in the middle of everything, and its neighbour is not', async t => {
  const s = await sandbox(t, Sandbox), neighbour = await sandbox(t, Sandbox)
  await s.files.makeDir('w')
  let beside = 0
  const steady = await neighbour.commands.run('while echo tick; do sleep 0.05; done', { background: true, onStdout: () => beside++ })
  steady.wait().catch(() => {})
  let out = ''
  const command = await s.commands.run('while echo tick; do sleep 0.01; done', { background: true, onStdout: x => (out += x) })
  const terminal = await s.pty.create({ cols: 80, rows: 24, onData: () => {} })
  const watched = new Promise(good => s.files.watchDir('w', () => {}, { onExit: good }).then(() => (out += 'watch')))
  const lines = []
  const cell = s.runCode('import time\nwhile True: print("tick", flush=True); time.sleep(0.05)', { onStdout: m => lines.push(m.line) })
  cell.catch(() => {})
  await until(() => /tick/.test(out) && /watch/.test(out) && lines.length > 0, 'the streams')
  await s.kill()
  const ends = await Promise.allSettled([command.wait(), terminal.wait(), watched.then(e => Promise.reject(e)), cell])
  for (const end of ends) await rejects(Promise.reject(end.reason), 'TimeoutError', /killed/)
  const before = beside
  await until(() => beside > before + 5, 'the neighbour')
})

scenario('the end of its time ends its streams', async t => {
  const s = await sandbox(t, Sandbox)
  const command = await s.commands.run('sleep 600', { background: true })
  const end = assert.rejects(command.wait(), e => e.constructor.name === 'TimeoutError' && /end of life/.test(e.message))
  await s.setTimeout(500)
  await end
})

scenario('a pause cuts streams, and the command goes on after it', async t => {
  const s = await sandbox(t, Sandbox)
  const command = await s.commands.run('read line; echo "got $line"', { background: true, stdin: true })
  const cut = assert.rejects(command.wait())
  assert.equal(await s.betaPause(), true)
  await cut
  await s.connect()
  let out = ''
  const again = await s.commands.connect(command.pid, { onStdout: x => (out += x) })
  await s.commands.sendStdin(command.pid, 'word\n')
  assert.equal((await again.wait()).exitCode, 0)
  assert.equal(out, 'got word\n')
})

scenario('a watch that is stopped, and one whose time is over', async t => {
  const s = await sandbox(t, Sandbox)
  await s.files.makeDir('w')
  const seen = []
  const stopped = await s.files.watchDir('w', e => seen.push(e.name))
  await s.files.writeFiles([{ path: 'w/a', data: '1' }])
  await until(() => seen.includes('a'), 'the event')
  await stopped.stop()
  const over = new Promise(good => s.files.watchDir('w', e => seen.push(e.name), { timeoutMs: 1000, onExit: good }))
  assert.equal((await over)?.constructor.name, 'TimeoutError')
  const count = seen.length
  await s.files.write('w/b', '1')
  assert.equal(seen.length, count)
})
