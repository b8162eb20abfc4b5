// The loop of an agent with E2B's SDK: a model writes code, a sandbox runs it, and the model sees what came of it, until it answers.
import { Sandbox } from '@e2b/code-interpreter'

async function ask(messages) {
  const headers = { 'Content-Type': 'application/json', Authorization: `Bearer ${process.env.MODEL_KEY ?? ''}` }
  const body = JSON.stringify({ model: process.env.MODEL ?? 'default', messages })
  const r = await fetch(process.env.MODEL_URL + '/chat/completions', { method: 'POST', headers, body })
  if (!r.ok) throw new Error(`the model answers ${r.status}: ${await r.text()}`)
  return (await r.json()).choices[0].message.content
}

const how = 'Write Python in a block that begins with ```python to learn what you need: you get what it prints, and its last value. A text without a block is your answer.'
const messages = [{ role: 'system', content: how }, { role: 'user', content: process.argv[2] }]
const sandbox = await Sandbox.create({ timeoutMs: 600_000 })
try {
  for (let turn = 0; turn < 20; turn++) {
    const said = await ask(messages)
    const code = said.match(/```python\n(.*?)```/s)?.[1]
    if (code === undefined) {
      console.log(said)
      break
    }
    const { logs, text, error } = await sandbox.runCode(code)
    const came = [...logs.stdout, ...logs.stderr, text, error?.traceback].filter(Boolean).join('')
    messages.push({ role: 'assistant', content: said }, { role: 'user', content: came || '(nothing)' })
  }
} finally {
  await sandbox.kill()
}
