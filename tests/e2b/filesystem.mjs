// Files over the filesystem RPC.
import { Sandbox } from 'e2b'
import { assert, rejects, sandbox, scenario, until } from './scenario.mjs'

scenario('what a file is', async t => {
  const s = await sandbox(t, Sandbox)
  await s.files.write('a.txt', 'hello')
  await s.commands.run('chmod 640 a.txt; ln -s a.txt link; ln -s nowhere broken')
  const info = await s.files.getInfo('a.txt')
  assert.deepEqual([info.name, info.path, info.type, info.size, info.mode, info.permissions, info.owner, info.group],
    ['a.txt', '/home/user/a.txt', 'file', 5, 0o640, '-rw-r-----', 'user', 'user'])
  assert(Math.abs(info.modifiedTime.getTime() - Date.now()) < 600000)
  const link = await s.files.getInfo('link')
  assert.deepEqual([link.type, link.symlinkTarget], ['file', '/home/user/a.txt'])
  assert.equal(await s.files.exists('a.txt'), true)
  assert.equal(await s.files.exists('b.txt'), false)
  await rejects(s.files.getInfo('b.txt'), 'FileNotFoundError')
})

scenario('directories', async t => {
  const s = await sandbox(t, Sandbox)
  assert.equal(await s.files.makeDir('d/e'), true)
  assert.equal(await s.files.makeDir('d/e'), false)
  await s.files.write('d/e/f', '1')
  await s.files.write('d/b', '2')
  await rejects(s.files.makeDir('d/b'), 'InvalidArgumentError')
  assert.deepEqual((await s.files.list('d')).map(e => [e.name, e.type]), [['b', 'file'], ['e', 'dir']])
  assert.deepEqual((await s.files.list('d', { depth: 2 })).map(e => e.path), ['/home/user/d/b', '/home/user/d/e', '/home/user/d/e/f'])
  await rejects(s.files.list('d/b'), 'InvalidArgumentError')
  await rejects(s.files.list('nowhere'), 'FileNotFoundError')
  const moved = await s.files.rename('d/e', 'g/h')
  assert.equal(moved.path, '/home/user/g/h')
  await rejects(s.files.rename('d/e', 'x'), 'FileNotFoundError')
  await s.files.remove('g')
  await s.files.remove('g')
  assert.equal(await s.files.exists('g'), false)
})

scenario('a thousand and more entries', async t => {
  const s = await sandbox(t, Sandbox)
  await s.commands.run('mkdir many; cd many; seq 1 2500 | xargs touch')
  assert.equal((await s.files.list('many')).length, 2500)
})

scenario('a directory is watched', async t => {
  const s = await sandbox(t, Sandbox)
  await s.files.makeDir('w')
  const seen = []
  const handle = await s.files.watchDir('w', e => seen.push([e.type, e.name]), { recursive: true })
  await s.files.write('w/a', '1')
  await until(() => seen.some(([type, name]) => type === 'write' && name === 'a'), JSON.stringify(seen))
  await s.commands.run('mkdir w/sub && echo 1 > w/sub/b && mv w/a w/c && rm w/c')
  await until(() => seen.some(([type, name]) => type === 'remove' && name === 'c'), JSON.stringify(seen))
  assert(seen.some(([type, name]) => type === 'create' && name === 'sub/b'), JSON.stringify(seen))
  assert(seen.some(([type, name]) => type === 'rename' && name === 'a'), JSON.stringify(seen))
  await handle.stop()
  await rejects(s.files.watchDir('nowhere', () => {}), 'FileNotFoundError')
})

scenario('changes that are polled, by the client below the SDK', async t => {
  const s = await sandbox(t, Sandbox)
  const { rpc } = s.files
  const { watcherId } = await rpc.createWatcher({ path: '.', recursive: true, includeEntry: true })
  await s.files.write('polled.txt', 'x', { metadata: { k: 'v' } })
  const found = []
  await until(async () => {
    found.push(...(await rpc.getWatcherEvents({ watcherId })).events)
    return found.some(e => e.name === 'polled.txt' && e.type === 1 /* CREATE */)
  }, 'the change')
  assert.deepEqual(found.find(e => e.name === 'polled.txt').entry.metadata, { k: 'v' })
  await rpc.removeWatcher({ watcherId })
  await assert.rejects(rpc.getWatcherEvents({ watcherId }), e => e.code === 5)
})
