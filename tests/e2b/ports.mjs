// Ports of a sandbox by the host name that the SDK gives for them.
import http from 'node:http'
import { Sandbox } from 'e2b'
import { assert, native, sandbox, scenario, until } from './scenario.mjs'

// Names below localhost need not resolve on every host: the address is given, the name is sent.
function ask(host, headers = {}) {
  const [, port] = host.split(':')
  return new Promise((good, bad) =>
    http.get({ host: '127.0.0.1', port, headers: { host, ...headers }, agent: false }, r => {
      let text = ''
      r.on('data', x => (text += x))
      r.on('end', () => good({ status: r.statusCode, text }))
    }).on('error', bad))
}

async function serve(s) {
  await s.files.write('index.html', 'hello from inside')
  await native('POST', `/v1/sandboxes/${s.sandboxId}/processes`,
    { command: ['python3', '-m', 'http.server', '3000', '--bind', '127.0.0.1'] })
}

scenario('a server inside is reached by its host name', async t => {
  const s = await sandbox(t, Sandbox)
  await serve(s)
  await until(async () => (await ask(s.getHost(3000))).status === 200, 'the server')
  assert.equal((await ask(s.getHost(3000))).text, 'hello from inside')
  const closed = await ask(s.getHost(3001))
  assert.deepEqual([closed.status, JSON.parse(closed.text).message], [502, 'The sandbox is running but port is not open'])
  await s.kill()
  const gone = await ask(s.getHost(3000))
  assert.deepEqual([gone.status, JSON.parse(gone.text)], [502, { sandboxId: s.sandboxId, message: 'The sandbox was not found', code: 502 }])
})

scenario('a port that is not public wants the token', async t => {
  const s = await sandbox(t, Sandbox, { network: { allowPublicTraffic: false } })
  await serve(s)
  const token = { 'e2b-traffic-access-token': s.trafficAccessToken }
  await until(async () => (await ask(s.getHost(3000), token)).status === 200, 'the server')
  assert.equal((await ask(s.getHost(3000))).status, 403)
})
