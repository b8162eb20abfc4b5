// What the scenario files share: scenario(name, function[, seconds]) runs in order, each on its own, and prints TAP.
import assert from 'node:assert/strict'
import './calls.mjs'

export { assert }
export const url = process.env.E2B_API_URL
const scenarios = []

function start() {
  const word = process.env.SCENARIO
  const chosen = scenarios.filter(([name]) => !word || name.includes(word))
  console.log(`1..${chosen.length}`)
  const ended = chosen.reduce(async (before, [name, run, seconds], i) => {
    await before
    const timer = setTimeout(() => {
      console.log(`not ok ${i + 1} - ${name}\n# it took longer than ${seconds} s`)
      process.exit(1)
    }, seconds * 1000)
    const ends = []
    try {
      await run({ atEnd: f => ends.push(f) })
      console.log(`ok ${i + 1} - ${name}`)
    } catch (e) {
      process.exitCode = 1
      console.log(`not ok ${i + 1} - ${name}\n${String(e?.stack ?? e).replace(/^/gm, '# ')}`)
    }
    for (const f of ends.reverse()) await f().catch(() => {})
    clearTimeout(timer)
  }, Promise.resolve())
  return ended.then(() => process.exit()) // the SDK leaves timers of a minute behind
}

export function scenario(name, run, seconds = 60) {
  if (scenarios.push([name, run, seconds]) === 1) setImmediate(start)
}

/** A sandbox that ends with its scenario. */
export async function sandbox(t, Sandbox, ...args) {
  const s = await Sandbox.create(...args)
  t.atEnd(() => s.kill())
  return s
}

/** Waits until it is so, with a bound. */
export async function until(condition, what) {
  for (const end = Date.now() + 30000; !(await condition()); await new Promise(f => setTimeout(f, 50)))
    if (Date.now() > end) throw new Error(`it did not come: ${what}`)
}

/** The native interface, for what a scenario has to set up. */
export async function native(method, path, body) {
  const r = await fetch(url + path, {
    method,
    headers: { 'X-API-KEY': process.env.E2B_API_KEY, 'Content-Type': 'application/json' },
    body: body === undefined ? undefined : JSON.stringify(body),
  })
  assert(r.ok, `${method} ${path}: ${r.status} ${await r.clone().text()}`)
  return r.json()
}

export async function rejects(promise, type, word) {
  await assert.rejects(promise, e => {
    assert.equal(e.constructor.name, type, `${e.constructor.name}: ${e.message}`)
    if (word) assert.match(e.message, word)
    return true
  })
}
