// How each call ends that cannot be had, as the SDK tells it.
import { Sandbox, Secret, Template, Volume } from 'e2b'
import { assert, rejects, sandbox, scenario } from './scenario.mjs'

const nobody = 'abcdefghij0123456789'

scenario('a key that is none', async t => {
  const s = await sandbox(t, Sandbox)
  const wrong = { apiKey: 'e2b_' + '1'.repeat(40) }
  const calls = [() => Sandbox.create(wrong), () => Sandbox.list(wrong).nextItems(), () => Sandbox.connect(s.sandboxId, wrong), () => Sandbox.getInfo(s.sandboxId, wrong), () => Sandbox.kill(s.sandboxId, wrong),
    () => Sandbox.pause(s.sandboxId, wrong), () => Sandbox.setTimeout(s.sandboxId, 1000, wrong), () => Sandbox.getMetrics(s.sandboxId, wrong)]
  for (const call of calls) await rejects(call(), 'AuthenticationError')
  assert.equal(await s.isRunning(), true)
})

scenario('a sandbox that is not there', async () => {
  for (const call of [() => Sandbox.fork(nobody), () => Sandbox.createSnapshot(nobody), () => Sandbox.updateNetwork(nobody, {}), () => Sandbox.getInfo(nobody), () => Sandbox.connect(nobody), () => Sandbox.setTimeout(nobody, 1000), () => Sandbox.pause(nobody), () => Sandbox.betaPause(nobody), () => Sandbox.getMetrics(nobody)])
    await rejects(call(), 'SandboxNotFoundError')
  assert.equal(await Sandbox.kill(nobody), false)
  assert.equal(await Sandbox.deleteSnapshot('none:default'), false)
})

scenario('a token that is not the sandbox\'s', async t => {
  const s = await sandbox(t, Sandbox), other = await sandbox(t, Sandbox)
  const thief = new Sandbox({ sandboxId: s.sandboxId, envdVersion: s.envdApi.version, envdAccessToken: other.envdAccessToken })
  for (const call of [() => thief.commands.run('true'), () => thief.commands.list(), () => thief.files.read('/etc/hostname'), () => thief.files.write('x', 'x'), () => thief.files.list('.'), () => thief.pty.create({ cols: 80, rows: 24, onData: () => {} })])
    await rejects(call(), 'AuthenticationError')
  const unsigned = new Sandbox({ sandboxId: s.sandboxId, envdVersion: s.envdApi.version, envdAccessToken: 'guessed' })
  assert.equal((await fetch(await unsigned.downloadUrl('/etc/hostname'))).status, 401)
})

scenario('a killed sandbox', async t => {
  const s = await sandbox(t, Sandbox)
  await s.kill()
  for (const call of [() => s.commands.run('true'), () => s.commands.connect(1), () => s.pty.create({ cols: 80, rows: 24, onData: () => {} }), () => s.files.watchDir('.', () => {})]) await rejects(call(), 'SandboxNotFoundError')
  for (const call of [() => s.commands.list(), () => s.commands.kill(1), () => s.files.read('x'), () => s.files.write('x', 'x'), () => s.files.exists('x'), () => s.files.remove('x')]) await rejects(call(), 'TimeoutError')
  for (const pages of [s.listSnapshots(), Sandbox.listSnapshots({ name: 'nothing-of-this-name' })]) assert.deepEqual(await pages.nextItems(), [])
  for (const call of [() => s.fork(), () => s.createSnapshot(), () => s.updateNetwork({}), () => s.connect(), () => s.getInfo(), () => s.pause(), () => s.setTimeout(1000), () => s.getMetrics()]) await rejects(call(), 'SandboxNotFoundError')
  assert.deepEqual([await s.isRunning(), await s.kill()], [false, false])
})

scenario('processes', async t => {
  const s = await sandbox(t, Sandbox)
  const none = 99999, bytes = new TextEncoder().encode('x')
  assert.deepEqual([await s.commands.kill(none), await s.pty.kill(none)], [false, false])
  for (const call of [() => s.commands.connect(none), () => s.commands.sendStdin(none, 'x'), () => s.commands.closeStdin(none), () => s.pty.connect(none), () => s.pty.sendInput(none, bytes), () => s.pty.resize(none, { cols: 1, rows: 1 })])
    await rejects(call(), 'NotFoundError')
  await assert.rejects(s.commands.run('no-such-program'), e => e.exitCode === 127 && /not found/.test(e.stderr))
  await rejects(s.commands.run('sleep 600', { timeoutMs: 1000 }), 'TimeoutError')
})

scenario('files', async t => {
  const s = await sandbox(t, Sandbox)
  await s.files.write('plain', 'x')
  await s.files.makeDir('folder')
  await rejects(s.files.read('nowhere'), 'FileNotFoundError')
  await rejects(s.files.read('folder'), 'InvalidArgumentError')
  await rejects(s.files.getInfo('nowhere'), 'FileNotFoundError')
  await rejects(s.files.list('plain'), 'InvalidArgumentError')
  await rejects(s.files.list('folder', { depth: 0 }), 'InvalidArgumentError')
  await rejects(s.files.makeDir('plain'), 'InvalidArgumentError')
  await rejects(s.files.write('folder', 'x'), 'InvalidArgumentError')
  await rejects(s.files.watchDir('plain', () => {}), 'InvalidArgumentError')
  await rejects(s.files.write('/usr/x', 'x'), 'SandboxError', /read-only/)
  await rejects(s.files.read('plain', { user: 'nobody-here' }), 'AuthenticationError')
  assert.deepEqual([await s.files.makeDir('folder'), await s.files.exists('nowhere')], [false, false])
})

scenario('more than there is room for', async t => {
  const s = await sandbox(t, Sandbox)
  await s.commands.run('head -c 200M /dev/zero > most')
  await rejects(s.files.write('rest', new Blob([new Uint8Array(100 << 20)]), { useOctetStream: true }), 'NotEnoughSpaceError')
  assert.deepEqual((await s.files.list('.')).map(e => e.name).filter(n => !n.startsWith('.')), ['most'])
  await s.files.remove('most')
  await s.files.write('rest', 'fits')
})

scenario('a call that its caller gives up', async t => {
  const s = await sandbox(t, Sandbox)
  const given = AbortSignal.timeout(300)
  await assert.rejects(s.commands.run('sleep 600', { signal: given }))
  await assert.rejects(s.commands.run('sleep 600', { signal: AbortSignal.abort() }))
  await assert.rejects(Sandbox.list().nextItems({ signal: AbortSignal.abort() }))
  await assert.rejects(s.getInfo({ requestTimeoutMs: 0.001 }))
  assert.equal((await s.commands.run('echo fine')).stdout, 'fine\n')
})

scenario('what is not offered says so', async t => {
  const s = await sandbox(t, Sandbox)
  await assert.rejects(Template.build(Template().fromBaseImage(), 'own'), /501/)
  await assert.rejects(Volume.create('data'), /501/)
  await assert.rejects(Secret.create({ name: 'a', value: 'b' }), /501/)
  await assert.rejects(Sandbox.create({ mcp: { server: {} } }), /mcp-gateway/)
  assert.match(s.getMcpUrl(), /\/mcp$/)
  assert.equal(await s.getMcpToken().catch(() => undefined), undefined)
})
