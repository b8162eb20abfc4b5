// Adds the key to every request: for the conformance runner, which sends none. proxy.mjs PORT KEY; prints its own port.
import http from 'node:http';

const [, , port, key] = process.argv;
const server = http.createServer((request, answer) => {
  const headers = {...request.headers, authorization: `Bearer ${key}`};
  const onward = http.request({host: '127.0.0.1', port, path: request.url, method: request.method, headers}, (from) => {
    answer.writeHead(from.statusCode, from.headers);
    answer.flushHeaders();
    from.pipe(answer);
  });
  onward.on('error', () => answer.destroy());
  answer.on('close', () => onward.destroy());
  request.pipe(onward);
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
