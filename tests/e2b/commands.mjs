// Commands and terminals over the process RPC.
import { Sandbox } from 'e2b'
import { assert, rejects, sandbox, scenario, until } from './scenario.mjs'

scenario('a command with its streams', async t => {
  const s = await sandbox(t, Sandbox, { envs: { COLOUR: 'green' } })
  const seen = []
  const r = await s.commands.run('echo "$COLOUR $SHAPE"; pwd; echo grüße >&2', { envs: { SHAPE: 'round' }, cwd: '/tmp', onStdout: x => seen.push(x) })
  assert.deepEqual([r.exitCode, r.stdout, r.stderr], [0, 'green round\n/tmp\n', 'grüße\n'])
  assert.equal(seen.join(''), r.stdout)
  assert.equal((await s.commands.run('whoami; echo ~')).stdout, 'user\n/home/user\n')
})

scenario('python by its short name', async t => {
  const s = await sandbox(t, Sandbox)
  assert.equal((await s.commands.run('python -c "print(6 * 7)"')).stdout, '42\n')
})

scenario('ends by evidence', async t => {
  const s = await sandbox(t, Sandbox)
  await assert.rejects(s.commands.run('echo out; echo err >&2; exit 3'), e => {
    assert.deepEqual([e.constructor.name, e.exitCode, e.stdout, e.stderr], ['CommandExitError', 3, 'out\n', 'err\n'])
    return true
  })
  await assert.rejects(s.commands.run('kill -9 $$'), e => e.exitCode === -1 && /killed/i.test(e.error))
  await rejects(s.commands.run('true', { cwd: '/nowhere' }), 'InvalidArgumentError')
  await rejects(s.commands.run('true', { user: 'nobody-here' }), 'AuthenticationError')
})

scenario('a timeout ends the command', async t => {
  const s = await sandbox(t, Sandbox)
  await rejects(s.commands.run('sleep 600', { timeoutMs: 1500 }), 'TimeoutError')
  await until(async () => (await s.commands.list()).length === 0, 'its end')
})

scenario('commands in the background', async t => {
  const s = await sandbox(t, Sandbox)
  const c = await s.commands.run('read line; echo "got $line"; sleep 600', { background: true, stdin: true })
  const listed = await s.commands.list()
  assert.deepEqual(listed.map(p => [p.pid, p.cmd]), [[c.pid, '/bin/bash']])
  assert.equal((await s.commands.run(`kill -0 ${c.pid}; echo $?`)).stdout, '0\n')
  await c.disconnect()
  let out = ''
  const again = await s.commands.connect(c.pid, { onStdout: x => (out += x) })
  await s.commands.sendStdin(c.pid, 'hello\n')
  await until(() => out === 'got hello\n', out)
  assert.equal(await again.kill(), true)
  await assert.rejects(again.wait(), e => e.constructor.name === 'CommandExitError')
  assert.equal(await s.commands.kill(c.pid), false)
  assert.equal((await s.commands.run(`kill -0 ${c.pid} 2>/dev/null; echo $?`)).stdout, '1\n')
  await rejects(s.commands.connect(99999), 'NotFoundError')
})

scenario('input that ends', async t => {
  const s = await sandbox(t, Sandbox)
  const c = await s.commands.run('cat; echo end', { background: true, stdin: true })
  await s.commands.sendStdin(c.pid, 'abc')
  await s.commands.closeStdin(c.pid)
  assert.equal((await c.wait()).stdout, 'abcend\n')
  const none = await s.commands.run('sleep 600', { background: true })
  await rejects(s.commands.sendStdin(none.pid, 'x'), 'SandboxError')
  await none.kill()
})

scenario('a terminal', async t => {
  const s = await sandbox(t, Sandbox)
  let out = ''
  const p = await s.pty.create({ cols: 80, rows: 24, onData: d => (out += new TextDecoder().decode(d)), timeoutMs: 0 })
  await s.pty.sendInput(p.pid, new TextEncoder().encode('stty size; echo $TERM\n'))
  await until(() => /24 80\r\nxterm-256color/.test(out), out)
  await s.pty.resize(p.pid, { cols: 100, rows: 30 })
  await s.pty.sendInput(p.pid, new TextEncoder().encode('stty size\n'))
  await until(() => /30 100/.test(out), out)
  await s.pty.sendInput(p.pid, new TextEncoder().encode('exit 0\n'))
  assert.equal((await p.wait()).exitCode, 0)
})

scenario('much output in order', async t => {
  const s = await sandbox(t, Sandbox)
  const r = await s.commands.run('seq 1 200000')
  assert.equal(r.stdout, Array.from({ length: 200000 }, (_, i) => `${i + 1}\n`).join(''))
})

scenario('a sandbox that is killed looks so', async t => {
  const s = await sandbox(t, Sandbox)
  const c = await s.commands.run('sleep 600', { background: true })
  const end = assert.rejects(c.wait(), e => e.constructor.name === 'TimeoutError')
  await s.kill()
  await end
  await rejects(s.commands.run('true'), 'SandboxNotFoundError')
})

scenario('fifty sandboxes at once', async t => {
  const all = await Promise.all(Array.from({ length: 50 }, () => sandbox(t, Sandbox)))
  const said = await Promise.all(all.map((s, i) => s.commands.run(`echo ${i}`)))
  assert.deepEqual(said.map(r => r.stdout), all.map((_, i) => `${i}\n`))
})

scenario('much input to one that reads slowly', async t => {
  const s = await sandbox(t, Sandbox)
  const c = await s.commands.run('sleep 1; wc -c', { background: true, stdin: true })
  for (let i = 0; i < 40; i++) await c.sendStdin('x'.repeat(20000))
  await c.closeStdin()
  assert.equal((await c.wait()).stdout, '800000\n')
})
