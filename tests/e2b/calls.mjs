// Which methods of the SDK the scenarios call: run-sdk wants each of them at least once.
import { appendFileSync } from 'node:fs'
import * as sdk from 'e2b'
import { Sandbox as Interpreter } from '@e2b/code-interpreter'

const { Sandbox, Volume, Secret } = sdk
const some = new Sandbox({ sandboxId: 'none', envdVersion: '0.6.4', apiKey: 'e2b_00' })
const internal = new Set(['constructor', 'resolveApiOpts', 'fileUrl', 'getFullInfo', 'createSandbox', 'forkSandbox', 'connectSandbox', 'start', 'jupyterUrl',
  'getJupyterRequestUrl', 'includeDiagnostics', 'handleRequestError', 'supportsStdinClose', 'runGit', 'runShell', 'getRemoteUrl', 'resolveRemoteName',
  'withRemoteCredentials', 'hasUpstream', 'updatePagination'])

const objects = {
  'Sandbox.': Sandbox, 'SandboxApi.': Object.getPrototypeOf(Sandbox), 'sandbox.': Sandbox.prototype, 'interpreter.': Interpreter.prototype,
  ...Object.fromEntries(['files', 'commands', 'pty', 'git'].map(name => [`sandbox.${name}.`, Object.getPrototypeOf(some[name])])),
}
const called = new Set()

function watch(where, object) {
  const names = Object.getOwnPropertyNames(object).filter(name => !internal.has(name) && typeof Object.getOwnPropertyDescriptor(object, name).value === 'function')
  for (const name of names) {
    const method = object[name]
    object[name] = function (...rest) {
      called.add(where + name)
      return method.apply(this, rest)
    }
  }
  return names.map(name => where + name)
}

const every = Object.entries(objects).flatMap(([where, object]) => watch(where, object))
every.push('Volume.create', 'Secret.create') // what is not offered; one each tells so
for (const [where, object, name] of [['Volume.', Volume, 'create'], ['Secret.', Secret, 'create']]) {
  const method = object[name]
  object[name] = (...rest) => (called.add(where + name), method.apply(object, rest))
}

process.on('exit', () => {
  if (process.env.CALLS) appendFileSync(process.env.CALLS, JSON.stringify({ every, called: [...called] }) + '\n')
})
