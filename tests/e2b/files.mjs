// Files by HTTP: what the SDK sends for each kind of content, and signed URLs.
import { Sandbox } from 'e2b'
import { assert, rejects, sandbox, scenario } from './scenario.mjs'

scenario('every kind of content', async t => {
  const s = await sandbox(t, Sandbox)
  const bytes = crypto.getRandomValues(new Uint8Array(60000))
  const made = await s.files.write('a b/ü.txt', 'grüße')
  assert.deepEqual([made.name, made.path, made.type], ['ü.txt', '/home/user/a b/ü.txt', 'file'])
  assert.equal(await s.files.read('a b/ü.txt'), 'grüße')
  await s.files.write('bytes', bytes.buffer)
  assert.deepEqual(await s.files.read('bytes', { format: 'bytes' }), bytes)
  await s.files.write('blob', new Blob([bytes]))
  assert.deepEqual(new Uint8Array(await (await s.files.read('blob', { format: 'blob' })).arrayBuffer()), bytes)
  await s.files.write('stream', new Blob([bytes, bytes]).stream())
  let size = 0
  for await (const part of await s.files.read('stream', { format: 'stream' })) size += part.length
  assert.equal(size, 120000)
  await s.files.write('empty', '')
  assert.equal(await s.files.read('empty'), '')
  await s.files.write('zipped', 'z'.repeat(100000), { gzip: true })
  assert.equal(await s.files.read('zipped', { gzip: true }), 'z'.repeat(100000))
  await s.files.write('octets', bytes.buffer, { useOctetStream: true })
  assert.deepEqual(await s.files.read('octets', { format: 'bytes' }), bytes)
})

scenario('several files at once', async t => {
  const s = await sandbox(t, Sandbox)
  const made = await s.files.write([{ path: 'one', data: '1' }, { path: '/tmp/deep/two', data: new Blob(['2']) }])
  assert.deepEqual(made.map(x => x.path), ['/home/user/one', '/tmp/deep/two'])
  assert.equal(await s.files.read('/tmp/deep/two'), '2')
})

scenario('a large file', async t => {
  const s = await sandbox(t, Sandbox)
  const data = new Uint8Array(20_000_000).fill(7)
  await s.files.write('large', data.buffer)
  assert.equal(Buffer.compare(Buffer.from(await s.files.read('large', { format: 'bytes' })), Buffer.from(data)), 0)
})

scenario('metadata', async t => {
  const s = await sandbox(t, Sandbox)
  const made = await s.files.write('a.txt', 'x', { metadata: { author: 'me', Purpose: 'a test' } })
  assert.deepEqual(made.metadata, { author: 'me', purpose: 'a test' })
  assert.deepEqual((await s.files.getInfo('a.txt')).metadata, { author: 'me', purpose: 'a test' })
  assert.deepEqual((await s.files.rename('a.txt', 'b.txt')).metadata, { author: 'me', purpose: 'a test' })
  assert.deepEqual((await s.files.list('.')).find(x => x.name === 'b.txt').metadata, { author: 'me', purpose: 'a test' })
  await s.files.write('b.txt', 'y')
  assert.equal((await s.files.getInfo('b.txt')).metadata, undefined)
  await rejects(s.files.write('c.txt', 'x', { metadata: { big: 'v'.repeat(5000) } }), 'InvalidArgumentError')
})

scenario('what cannot be had', async t => {
  const s = await sandbox(t, Sandbox)
  await rejects(s.files.read('nowhere'), 'FileNotFoundError')
  await rejects(s.files.read('/tmp'), 'InvalidArgumentError')
  await rejects(s.files.read('x', { user: 'nobody-here' }), 'AuthenticationError')
  await s.kill()
  await rejects(s.files.read('x'), 'TimeoutError')
})

scenario('signed URLs', async t => {
  const s = await sandbox(t, Sandbox)
  await s.files.write('a +b.txt', 'signed')
  assert.equal(await (await fetch(await s.downloadUrl('a +b.txt'))).text(), 'signed')
  assert.equal(await (await fetch(await s.downloadUrl('a +b.txt', { useSignatureExpiration: 60 }))).text(), 'signed')
  const late = await fetch(await s.downloadUrl('a +b.txt', { useSignatureExpiration: -60 }))
  assert.deepEqual([late.status, await late.json()], [401, { code: 401, message: 'signature is already expired' }])
  const form = new FormData()
  form.append('file', new Blob(['by form']), 'form.txt')
  const up = await fetch(await s.uploadUrl(), { method: 'POST', body: form })
  assert.equal(up.status, 200)
  assert.equal(await s.files.read('form.txt'), 'by form')
  assert.equal((await fetch((await s.downloadUrl('a +b.txt')).replace('signature=v1_', 'signature=v1_x'))).status, 401)
})
