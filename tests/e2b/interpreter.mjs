// The code interpreter's SDK.
import { Sandbox } from '@e2b/code-interpreter'
import { assert, rejects, sandbox, scenario } from './scenario.mjs'

scenario('state, results and streams', async t => {
  const s = await sandbox(t, Sandbox, { envs: { COLOUR: 'green' } })
  const seen = []
  const first = await s.runCode('import os, sys\nx = 20\nprint("hello")\nprint("grüße", file=sys.stderr)\nos.environ["COLOUR"]', { onStdout: m => seen.push(m.line) })
  assert.deepEqual([first.text, first.logs.stdout, first.logs.stderr, first.executionCount, first.error], ['green', ['hello\n'], ['grüße\n'], 1, undefined])
  assert.deepEqual(seen, ['hello\n'])
  assert.equal((await s.runCode('x + 1')).text, '21')
  assert.equal((await s.runCode('os.environ["COLOUR"]', { envs: { COLOUR: 'red' } })).text, 'red')
  assert.equal((await s.runCode('os.environ["COLOUR"]')).text, 'green')
})

scenario('an error', async t => {
  const s = await sandbox(t, Sandbox)
  const e = (await s.runCode('1 / 0')).error
  assert.deepEqual([e.name, e.value], ['ZeroDivisionError', 'division by zero'])
  assert.match(e.traceback, /1 \/ 0/)
})

scenario('rich results', async t => {
  const s = await sandbox(t, Sandbox)
  const r = await s.runCode('import pandas as pd, matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4], label="l"); plt.title("T"); plt.show()\npd.DataFrame({"a": [1, 2]})')
  assert.equal(r.error, undefined)
  const figure = r.results.find(x => x.png)
  assert.deepEqual([figure.chart.type, figure.chart.title], ['line', 'T'])
  const frame = r.results.at(-1)
  assert(frame.isMainResult && /<table/.test(frame.html))
  assert.deepEqual(frame.data, { a: [1, 2] })
})

scenario('contexts', async t => {
  const s = await sandbox(t, Sandbox)
  const c = await s.createCodeContext({ cwd: '/tmp', language: 'python' })
  assert.deepEqual([c.language, c.cwd], ['python', '/tmp'])
  await s.runCode('y = 1', { context: c })
  assert.equal((await s.runCode('import os; (y, os.getcwd())', { context: c })).text, "(1, '/tmp')")
  assert.equal((await s.runCode('y')).error.name, 'NameError')
  const listed = await s.listCodeContexts()
  assert(listed.some(x => x.id === c.id))
  await s.restartCodeContext(c)
  assert.equal((await s.runCode('y', { context: c })).error.name, 'NameError')
  await s.removeCodeContext(c)
  await rejects(s.runCode('1', { context: c }), 'NotFoundError')
})

scenario('other languages', async t => {
  const s = await sandbox(t, Sandbox)
  assert.deepEqual((await s.runCode('echo $((6 * 7))', { language: 'bash' })).logs.stdout, ['42\n'])
  assert.equal((await s.runCode('const v = await Promise.resolve(6); v * 7', { language: 'js' })).text, '42')
  assert.equal((await s.runCode('process.cwd()', { language: 'javascript' })).text, '/home/user')
  await rejects(s.runCode('1', { language: 'cobol' }), 'SandboxError')
})

scenario('a timeout of the client interrupts and keeps the context', async t => {
  const s = await sandbox(t, Sandbox)
  await s.runCode('x = 5')
  await rejects(s.runCode('import time; time.sleep(600)', { timeoutMs: 1500 }), 'TimeoutError')
  assert.equal((await s.runCode('x')).text, '5')
})

scenario('a sandbox that is killed ends what runs', async t => {
  const s = await sandbox(t, Sandbox)
  await s.runCode('1')
  const end = assert.rejects(s.runCode('import time; time.sleep(600)'), e => e.constructor.name === 'TimeoutError')
  await new Promise(f => setTimeout(f, 500))
  await s.kill()
  await end
})

scenario('figures, charts and pictures', async t => {
  const s = await sandbox(t, Sandbox)
  const shown = []
  const pie = await s.runCode('import matplotlib.pyplot as plt\nplt.pie([90, 10], labels=["most", "rest"], startangle=90)\nplt.show()\nplt.figure()\nplt.show()\n6 * 7', { onResult: r => shown.push(r) })
  assert.equal(pie.error, undefined)
  assert.deepEqual(pie.results[0].chart.elements, [{ label: 'most', angle: 324, radius: 1 }, { label: 'rest', angle: 36, radius: 1 }])
  assert(pie.results[1].png && /with 0 Axes/.test(pie.results[1].text), 'nothing is drawn on it, and it is shown')
  assert.deepEqual([pie.results.length, pie.text, shown.length], [3, '42', 3])
  const picture = await s.runCode('from PIL import Image\ni = Image.new("RGB", (8, 8), "red")\ni.show()\ni.save("red.png")\nplt.plot([1, 2])\nplt.savefig("plot.png")\nplt.close("all")\ni')
  assert.deepEqual(picture.results.map(r => [!!r.png, r.isMainResult]), [[true, false], [true, false], [true, true]])
  assert.deepEqual((await s.files.list('.')).map(e => e.name).filter(n => n.endsWith('.png')), ['plot.png', 'red.png'])
})

scenario('what is told while it runs', async t => {
  const s = await sandbox(t, Sandbox)
  const told = { onStdout: [], onStderr: [], onResult: [], onError: [] }
  const tell = Object.fromEntries(Object.entries(told).map(([name, list]) => [name, x => list.push(x)]))
  await s.runCode('import sys\nprint("out")\nprint("err", file=sys.stderr)\n5', tell)
  await s.runCode('nothing_of_this_name', tell)
  assert.deepEqual([told.onStdout.map(m => m.line), told.onStderr.map(m => m.line), told.onResult.map(r => r.text)], [['out\n'], ['err\n'], ['5']])
  assert.deepEqual(told.onError.map(e => e.name), ['NameError'])
})

scenario('what the interpreter refuses', async t => {
  const s = await sandbox(t, Sandbox)
  await rejects(s.runCode({ code: 1 }), 'SandboxError')
  await rejects(s.runCode('1', { context: { id: 'none', language: 'python', cwd: '/' } }), 'NotFoundError')
  await rejects(s.removeCodeContext('none'), 'NotFoundError')
  await rejects(s.restartCodeContext('none'), 'NotFoundError')
  await rejects(s.createCodeContext({ language: 'cobol' }), 'SandboxError')
  await rejects(s.createCodeContext({ cwd: '/nowhere' }), 'SandboxError')
  assert.equal((await s.runCode('1')).text, '1')
})
