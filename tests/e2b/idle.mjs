// Streams on which nothing happens for longer than the five minutes after which the client's HTTP gives up.
import { Sandbox } from '@e2b/code-interpreter'
import { assert, sandbox, scenario, until } from './scenario.mjs'

const quiet = 315

scenario('streams stay open while nothing happens', async t => {
  const s = await sandbox(t, Sandbox, { timeoutMs: 900000 })
  await s.files.makeDir('w')
  let seen = '', terminal = ''
  const told = s.runCode(`import time\ntime.sleep(${quiet})\n'cell'`, { timeoutMs: 0 })
  const command = s.commands.run(`sleep ${quiet}; echo command`, { timeoutMs: 0 })
  const follower = await s.commands.run(`sleep ${quiet}; echo followed`, { background: true, timeoutMs: 0 }).then(async h => (await h.disconnect(), s.commands.connect(h.pid, { timeoutMs: 0 })))
  const p = await s.pty.create({ cols: 80, rows: 24, onData: d => (terminal += new TextDecoder().decode(d)), timeoutMs: 0 })
  const watch = await s.files.watchDir('w', e => (seen += e.name), { timeoutMs: 0, onExit: e => (seen += `ended: ${e}`) })
  assert.deepEqual([(await command).stdout, (await follower.wait()).stdout, (await told).text], ['command\n', 'followed\n', 'cell'])
  await s.files.write('w/late', '1')
  await until(() => /late/.test(seen), seen)
  await s.pty.sendInput(p.pid, new TextEncoder().encode('echo $((40 + 2)); exit\n'))
  assert.equal((await p.wait()).exitCode, 0)
  assert.match(terminal, /42/)
  assert.doesNotMatch(seen, /ended/)
  await watch.stop()
}, 420)
