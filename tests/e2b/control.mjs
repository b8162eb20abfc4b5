// The life of sandboxes, as programs written for the SDK have it.
import { Sandbox } from 'e2b'
import { assert, rejects, sandbox, scenario, until } from './scenario.mjs'

scenario('create, look, kill', async t => {
  const s = await sandbox(t, Sandbox, { metadata: { job: '42' }, envs: { MODE: 'test' } })
  assert.match(s.sandboxId, /^[a-z0-9]+$/)
  const info = await s.getInfo()
  assert.equal(info.state, 'running')
  assert.deepEqual(info.metadata, { job: '42' })
  assert.equal(info.templateId, 'base')
  assert(Math.abs(info.endAt - info.startedAt - 300000) < 2000, 'five minutes')
  assert.equal(await s.isRunning(), true)
  assert.equal(await s.kill(), true)
  assert.equal(await s.isRunning(), false)
  assert.equal(await Sandbox.kill(s.sandboxId), false)
  await rejects(Sandbox.getInfo(s.sandboxId), 'SandboxNotFoundError')
  await rejects(Sandbox.connect(s.sandboxId), 'SandboxNotFoundError')
  await rejects(Sandbox.setTimeout(s.sandboxId, 5000), 'SandboxNotFoundError')
})

scenario('what cannot be had', async () => {
  await rejects(Sandbox.create('no-such-template'), 'SandboxError', /404/)
  await rejects(Sandbox.create({ timeoutMs: 1000 * 3600 * 1000 }), 'SandboxError', /400/)
  await rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }), 'AuthenticationError')
  await rejects(Sandbox.create({ allowInternetAccess: true }), 'SandboxError', /403/)
})

scenario('time is set, and connecting never shortens it', async t => {
  const s = await sandbox(t, Sandbox, { timeoutMs: 200000 })
  const left = async () => (await s.getInfo()).endAt - Date.now()
  await Sandbox.connect(s.sandboxId, { timeoutMs: 5000 })
  assert((await left()) > 100000)
  await s.setTimeout(60000)
  assert((await left()) < 61000)
  await s.setTimeout(500)
  await until(async () => !(await s.isRunning()), 'the end of its time')
})

scenario('lists by metadata, state and page', async t => {
  const odd = { 'a b': 'c&d', ü: '20%+=' }
  const made = []
  for (let i = 0; i < 3; i++) made.push((await sandbox(t, Sandbox, { metadata: { ...odd, n: String(i) } })).sandboxId)
  const all = async options => {
    const found = []
    for (const pages = Sandbox.list(options); pages.hasNext;) found.push(...(await pages.nextItems()))
    return found.map(x => x.sandboxId)
  }
  assert.deepEqual(await all({ query: { metadata: odd }, limit: 2 }), made.toReversed())
  assert.deepEqual(await all({ query: { metadata: { ...odd, n: '1' } } }), [made[1]])
  assert.deepEqual(await all({ query: { metadata: { ...odd, n: '7' } } }), [])
  await Sandbox.pause(made[0])
  assert.deepEqual(await all({ query: { metadata: odd, state: ['paused'] } }), [made[0]])
  assert.deepEqual(await all({ query: { metadata: odd, state: ['running'] } }), made.slice(1).reverse())
})

scenario('pause and wake', async t => {
  const s = await sandbox(t, Sandbox)
  await s.files.write('note', 'kept')
  assert.equal(await s.pause(), true)
  assert.equal(await s.pause(), false)
  assert.equal(await s.isRunning(), false)
  assert.equal((await s.getInfo()).state, 'paused')
  const back = await Sandbox.connect(s.sandboxId)
  assert.equal(back.sandboxId, s.sandboxId)
  assert.equal(await back.files.read('note'), 'kept')
  assert.equal(await s.isRunning(), true)
})

scenario('pausing at the end of its time, waking by traffic', async t => {
  const s = await sandbox(t, Sandbox, { timeoutMs: 1000, lifecycle: { onTimeout: 'pause', autoResume: true } })
  await until(async () => (await s.getInfo()).state === 'paused', 'the pause')
  await s.files.write('note', 'awake')
  assert.equal((await s.getInfo()).state, 'running')
})

scenario('fork', async t => {
  const s = await sandbox(t, Sandbox, { metadata: { job: '42' }, envs: { MODE: 'test' } })
  await s.files.write('note', 'kept')
  const made = await s.fork({ count: 2, timeoutMs: 60000 })
  for (const f of made) {
    t.atEnd(() => f.kill())
    assert.notEqual(f.sandboxId, s.sandboxId)
    assert.equal(await f.files.read('note'), 'kept')
    assert.equal((await f.commands.run('echo $MODE')).stdout, 'test\n')
    assert.deepEqual((await f.getInfo()).metadata, { job: '42' })
  }
  await s.kill()
  await rejects(Sandbox.fork(s.sandboxId), 'SandboxNotFoundError')
  assert.equal(await made[0].isRunning(), true)
})

scenario('snapshots', async t => {
  const s = await sandbox(t, Sandbox, { metadata: { job: '42' }, envs: { MODE: 'test' } })
  await s.files.write('note', 'kept')
  const named = await s.createSnapshot({ name: 'scenario:v1' }), unnamed = await Sandbox.createSnapshot(s.sandboxId)
  assert.deepEqual(named, { snapshotId: 'scenario:v1', names: ['scenario:v1'] })
  assert.deepEqual(unnamed.names, [])
  await s.files.write('note', 'later')
  const all = async (pages, found = []) => {
    while (pages.hasNext) found.push(...(await pages.nextItems()))
    return found.map(x => x.snapshotId)
  }
  assert.deepEqual(await all(s.listSnapshots({ limit: 1 })), [unnamed.snapshotId, named.snapshotId])
  assert.deepEqual(await all(Sandbox.listSnapshots({ name: 'scenario' })), [named.snapshotId])
  await s.kill()
  for (const { snapshotId } of [named, unnamed]) {
    const f = await sandbox(t, Sandbox, snapshotId, { envs: { MORE: 'm' } })
    assert.equal(await f.files.read('note'), 'kept')
    assert.equal((await f.commands.run('echo $MODE $MORE')).stdout, 'test m\n')
    assert.deepEqual((await f.getInfo()).metadata, { job: '42' })
    assert.equal(await Sandbox.deleteSnapshot(snapshotId), true)
    assert.equal(await Sandbox.deleteSnapshot(snapshotId), false)
    await rejects(Sandbox.create(snapshotId), 'SandboxError', /404/)
  }
  await rejects(Sandbox.createSnapshot(s.sandboxId), 'SandboxNotFoundError')
})

scenario('the network of one that runs', async t => {
  const s = await sandbox(t, Sandbox)
  await s.updateNetwork({ denyOut: ['0.0.0.0/0'] })
  assert.deepEqual((await s.getInfo()).network.denyOut, ['0.0.0.0/0'])
  await rejects(s.updateNetwork({ denyOut: ['0.0.0.0/0'], allowOut: ['example.org'] }), 'SandboxError', /403/)
  await s.updateNetwork({})
  await s.kill()
  await rejects(s.updateNetwork({}), 'SandboxNotFoundError')
})

scenario('metrics', async t => {
  const s = await sandbox(t, Sandbox)
  const [m] = await s.getMetrics()
  assert(m.timestamp instanceof Date && m.cpuCount >= 1 && m.memTotal > 0)
  assert.deepEqual(await s.getMetrics({ start: new Date(0), end: new Date(1000) }), [])
})

scenario('fifty sandboxes at once', async () => {
  const all = await Promise.all(Array.from({ length: 50 }, () => Sandbox.create()))
  assert.equal(new Set(all.map(s => s.sandboxId)).size, 50)
  await Promise.all(all.map((s, i) => s.files.write('me', String(i))))
  assert.deepEqual(await Promise.all(all.map(s => s.files.read('me'))), all.map((_, i) => String(i)))
  assert((await Promise.all(all.map(s => s.kill()))).every(x => x))
})
