// The SDK's client at `zwinger mcp`, by itself and through a daemon, and at /mcp of that daemon: what an agent's host does.
import assert from 'node:assert/strict';
import {Client} from '@modelcontextprotocol/sdk/client/index.js';
import {StdioClientTransport} from '@modelcontextprotocol/sdk/client/stdio.js';
import {StreamableHTTPClientTransport} from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const [, , zwinger, policy, url, key, keyFile] = process.argv;
const transports = {
  stdio: () => new StdioClientTransport({command: zwinger, args: ['mcp', '--policy', policy], stderr: 'ignore'}),
  'stdio through a daemon': () =>
    new StdioClientTransport({command: zwinger, args: ['mcp', '--url', url, '--key-file', keyFile], stderr: 'ignore'}),
  http: () => new StreamableHTTPClientTransport(new URL(url + '/mcp'), {requestInit: {headers: {Authorization: `Bearer ${key}`}}}),
};
let number = 0;

async function scenario(name, work) {
  try {
    await work();
    console.log(`ok ${++number} - ${name}`);
  } catch (e) {
    console.log(`not ok ${++number} - ${name}\n# ${String(e.stack).replaceAll('\n', '\n# ')}`);
    process.exitCode = 1;
  }
}

for (const [name, transport] of Object.entries(transports)) {
  const client = new Client({name: 'test', version: '1'});
  const call = (tool, args, ...more) => client.callTool({name: tool, arguments: args}, undefined, ...more);
  await scenario(`${name}: handshake and tools`, async () => {
    await client.connect(transport());
    assert.equal(client.getServerVersion().name, 'zwinger');
    const {tools} = await client.listTools(); // from now on the SDK holds each result against its outputSchema
    assert.deepEqual(tools.map((t) => t.name), ['run_code', 'run_command', 'read_file', 'write_file', 'list_files', 'sandbox_info']);
    await client.ping();
  });
  await scenario(`${name}: every tool's result fits its schema`, async () => {
    assert.equal((await call('run_code', {code: 'x = 6\nx * 7'})).structuredContent.text, '42');
    assert.equal((await call('run_code', {code: 'x'})).structuredContent.text, '6');
    assert.equal((await call('run_command', {command: 'echo hi; exit 4'})).structuredContent.exit_code, 4);
    assert.equal((await call('write_file', {path: 'f', content: 'é'})).structuredContent.size, 2);
    assert.equal((await call('read_file', {path: 'f'})).structuredContent.content, 'é');
    assert.equal((await call('list_files', {})).structuredContent.entries.some((e) => e.name === 'f'), true);
    assert.equal((await call('sandbox_info', {})).structuredContent.isolation, 'container');
    assert.equal((await call('run_code', {code: '1/0'})).isError, true);
    assert.equal((await call('read_file', {path: 'nothing'})).isError, true);
  });
  await scenario(`${name}: progress`, async () => {
    const seen = [];
    await call('run_command', {command: 'echo one; sleep 0.5; echo two'}, {onprogress: (p) => seen.push(p.message)});
    assert.match(seen.join(''), /^one\n/);
  });
  await scenario(`${name}: cancellation`, async () => {
    const abort = new AbortController();
    await assert.rejects(call('run_code', {code: 'print("up", flush=True)\nwhile True: pass'},
                              {signal: abort.signal, onprogress: () => abort.abort('enough')}));
    assert.equal((await call('run_code', {code: 'x'})).structuredContent.text, '6');
  });
  await scenario(`${name}: the end`, () => client.close());
}
console.log(`1..${number}`);
