// The JavaScript interpreter of a context: runs cells of code that come over descriptor 3 (protocol.md) in one lasting global scope.
//
// Cells are evaluated as a debugger's console does it (Runtime.evaluate with replMode): await at the top level, declarations that may
// come again. A second thread reads the channel, so that an interrupt arrives while a cell keeps this one busy.
// Runs inside the sandbox with the guest's rights, so nothing here is a wall.
'use strict';
const fs = require('fs');
const path = require('path');
const inspector = require('inspector');
const util = require('util');
const { createRequire } = require('module');
const { Worker } = require('worker_threads');

const driverImport = importer; // the importer of the script that started us
const CHANNEL = 3;
const TEXT_MAX = 1 << 20;
const MESSAGE_MAX = 15 << 20;
const DEPTH_MAX = 40;
const VALUES_MAX = 50000; // of a document
const shared = new Int32Array(new SharedArrayBuffer(12)); // the execution that runs, that was to stop, that stopped by itself
const [RUNS, STOP, NOTICED] = [0, 1, 2];

// JSON without what the other side refuses: lone surrogates (which stringify escapes), whole numbers over 64 bits.
function encode(value) {
	return (JSON.stringify(value, (_, v) => typeof v === 'bigint' || Number.isInteger(v) && !Number.isSafeInteger(v) ? String(v) : v) ?? 'null')
		.replace(/(?<=(?:^|[^\\])(?:\\\\)*)\\ud[89a-f][0-9a-f]{2}/g, '\ufffd');
}

function depthOf(value, depth = 0) {
	if (depth > DEPTH_MAX || value === null || typeof value !== 'object')
		return depth;
	return Object.values(value).reduce((most, v) => Math.max(most, depthOf(v, depth + 1)), depth);
}

function send(message) {
	let data = Buffer.from(encode(message));
	data = Buffer.concat([Buffer.from(data.length + '\n'), data]);
	while (data.length) {
		try {
			data = data.subarray(fs.writeSync(CHANNEL, data));
		} catch (fault) {
			if (fault.code !== 'EAGAIN')
				process.reallyExit(0);
			Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2); // the other side is slow
		}
	}
}

// ---- Values to results. ----

const FORMATS = {
	'text/plain': 'text', 'text/html': 'html', 'text/markdown': 'markdown', 'image/svg+xml': 'svg', 'image/png': 'png',
	'image/jpeg': 'jpeg', 'application/pdf': 'pdf', 'text/latex': 'latex', 'application/json': 'json',
	'application/javascript': 'javascript', 'e2b/data': 'data', 'e2b/chart': 'chart',
};

function cut(text) {
	return text.length <= TEXT_MAX ? text : text.slice(0, TEXT_MAX) + '...';
}

function describe(value) {
	try {
		return cut(util.inspect(value));
	} catch (fault) {
		return '<a value that cannot be shown>';
	}
}

async function bundleOf(value) {
	for (const name of [Symbol.for('Jupyter.display'), '$$mimebundle$$'])
		if (value !== null && (typeof value === 'object' || typeof value === 'function') && typeof value[name] === 'function')
			return { 'text/plain': describe(value), ...await value[name]() };
	return { 'text/plain': describe(value) };
}

function sendBundle(bundle, main) {
	const result = { main };
	for (let [mime, value] of Object.entries(bundle)) {
		if (value instanceof Uint8Array)
			value = Buffer.from(value).toString(/^(image\/(png|jpeg)|application\/pdf)$/.test(mime) ? 'base64' : 'utf8');
		if (FORMATS[mime])
			result[FORMATS[mime]] = value;
		else
			(result.extra ??= {})[mime] = value;
	}
	const sizes = {};
	for (const [key, value] of Object.entries(result)) {
		const text = typeof value === 'string';
		if (!text && typeof value === 'object' && depthOf(value) > DEPTH_MAX) {
			sizes[key] = MESSAGE_MAX;
			continue;
		}
		const encoded = encode(value);
		sizes[key] = text || encoded.split(',').length < VALUES_MAX ? Buffer.byteLength(encoded) : MESSAGE_MAX;
	}
	while (Object.values(sizes).reduce((a, b) => a + b, 0) > MESSAGE_MAX - 1000) {
		const largest = Object.keys(sizes).reduce((a, b) => sizes[a] > sizes[b] ? a : b);
		process.stderr.write(`the ${largest} form of this result is left out: it is too large\n`);
		delete result[largest];
		delete sizes[largest];
	}
	send({ t: 'result', id: shared[RUNS], result });
}

async function display(value, options = {}) {
	sendBundle(options.raw ? value : await bundleOf(value), false);
}

// ---- Cells. ----

const session = new inspector.Session();
session.connect();
const held = { value: undefined };
const post = (method, parameters) => new Promise((resolve) => session.post(method, parameters, (fault, answer) =>
	resolve(fault ? { stopped: fault } : answer)));

// The value behind what the debugger tells.
async function valueOf(remote) {
	if (remote.objectId === undefined) {
		if (remote.unserializableValue === undefined)
			return remote.type === 'undefined' ? undefined : remote.value;
		return remote.unserializableValue.endsWith('n') ? BigInt(remote.unserializableValue.slice(0, -1)) :
			Number(remote.unserializableValue);
	}
	globalThis[HOLD] = (value) => { held.value = value; };
	await post('Runtime.callFunctionOn', { objectId: remote.objectId, functionDeclaration: `function () { globalThis["${HOLD}"](this) }` });
	delete globalThis[HOLD];
	const { value } = held;
	held.value = undefined;
	await post('Runtime.releaseObject', { objectId: remote.objectId });
	return value;
}
const HOLD = '__zwinger_hold';

// import statements are no part of a script; what they declare can be had from import().
function withoutImports(code) {
	const names = (list) => list.replace(/\btype\s+\w+\s*,?/g, '').replace(/\s+as\s+/g, ': ');
	return code.replace(/^([ \t]*)import\s+(?:([\w$]+)\s*,?\s*)?(?:\*\s*as\s+([\w$]+)\s*|\{([^}]*)\}\s*)?(?:from\s*)?(['"][^'"\n]+['"])(?:\s*(?:with|assert)\s*(\{[^}]*\}))?[ \t]*;?/gm,
		(all, indent, one, star, list, from, attributes) => {
			const load = `await import(${from}${attributes ? `, { with: ${attributes} }` : ''})`;
			const parts = [one && `default: ${one}`, list && names(list)].filter(Boolean).join(', ');
			if (star)
				return `${indent}var ${star} = ${load}${one ? `, ${one} = ${star}.default` : ''};`;
			return parts ? `${indent}var { ${parts} } = ${load};` : `${indent}${load};`;
		}).replace(/^([ \t]*)export\s+(default\s+)?/gm, '$1');
}

// import() has no importer in what a debugger evaluates: it is given one that looks from the working directory.
function withImporter(code) {
	return code.replace(/(^|[^\w$.])import\s*\(/g, '$1__import(');
}

async function load(name, options) {
	const text = String(name);
	if (/^\.{0,2}\//.test(text))
		return driverImport(require('url').pathToFileURL(path.resolve(text)).href, options);
	if (/^(node|data|file|https?):/.test(text) || require('module').builtinModules.includes(text))
		return driverImport(text, options);
	let found;
	try {
		found = globalThis.require.resolve(text);
	} catch {
		return driverImport(text, options);
	}
	return driverImport(path.isAbsolute(found) ? require('url').pathToFileURL(found).href : found, options);
}

let count = 0;
let stop; // ends the wait for the cell that runs

const compiles = (code) => {
	try {
		new (require('vm').Script)(code);
		return true;
	} catch {
		return false;
	}
};

async function evaluate(code, name) {
	if (/\bimport\b/.test(code))
		code = withImporter(compiles(code) ? code : withoutImports(code));
	const answer = await post('Runtime.evaluate', {
		expression: /^\s*\{[\s\S]*\}\s*$/.test(code) && compiles(`(${code}\n)`) ? `(${code}\n)` : code + `\n//# sourceURL=${name}`, replMode: true, awaitPromise: true, generatePreview: false,
		userGesture: false, objectGroup: 'cell',
	});
	if (answer.stopped)
		throw new Interrupted();
	if (answer.exceptionDetails) {
		const { exception } = answer.exceptionDetails;
		throw new Thrown(await valueOf(exception));
	}
	return await valueOf(answer.result);
}

class Interrupted extends Error {}
class Thrown {
	constructor(value) {
		this.value = value;
	}
}

function errorOf(value) {
	if (!(util.types.isNativeError(value) || value instanceof Error))
		return { name: 'Uncaught', value: describe(value), traceback: 'Uncaught ' + describe(value) };
	const lines = String(value.stack ?? value).split('\n');
	const last = lines.findLastIndex((line) => /^\s+at .*cell-\d+\.[jt]s:/.test(line)); // below it are our own frames
	const kept = last >= 0 ? lines.slice(0, last + 1) : lines.filter((line) => !/^\s+at /.test(line));
	return { name: String(value.name), value: cut(String(value.message)), traceback: cut(kept.join('\n')) };
}

async function execute(message, language) {
	const name = `cell-${++count}.${language === 'typescript' ? 'ts' : 'js'}`;
	const before = {};
	for (const [key, value] of Object.entries(message.env ?? {})) {
		before[key] = process.env[key];
		process.env[key] = value;
	}
	let status = 'ok';
	let fault;
	Atomics.store(shared, RUNS, message.id);
	const stopped = new Promise((_, reject) => { stop = () => reject(new Interrupted()); });
	stopped.catch(() => {});
	try {
		const work = (async () => {
			const value = await evaluate(language === 'typescript' ? stripTypes(message.code) : message.code, name);
			if (value !== undefined)
				sendBundle(await bundleOf(value), true);
		})();
		work.catch(() => {});
		await Promise.race([work, stopped]);
	} catch (thrown) {
		fault = thrown;
	}
	const interrupted = Atomics.load(shared, STOP) === message.id;
	if (fault instanceof Interrupted) {
		status = 'interrupted';
		send({ t: 'error', id: message.id, error: { name: 'Interrupted', value: 'the execution was interrupted', traceback: 'Interrupted: the execution was interrupted' } });
	} else if (fault) {
		status = 'error';
		send({ t: 'error', id: message.id, error: errorOf(fault instanceof Thrown ? fault.value : fault) });
	}
	Atomics.store(shared, RUNS, 0);
	for (const [key, value] of Object.entries(before))
		if (value === undefined)
			delete process.env[key];
		else
			process.env[key] = value;
	send({ t: 'done', id: message.id, status, interrupted });
}

// ---- TypeScript. ----

let stripTypes;

// By what is there: node itself, a package, or the program esbuild. Imports stay, whether the cell uses them or not.
function findTypes() {
	const { stripTypeScriptTypes } = require('module');
	if (stripTypeScriptTypes)
		return (code) => stripTypeScriptTypes(code, { mode: 'strip' });
	const kept = { isolatedModules: true, verbatimModuleSyntax: true, preserveValueImports: true, importsNotUsedAsValues: 'preserve' };
	const places = [process.cwd(), '/usr/lib/node_modules', '/usr/local/lib/node_modules', '/usr/share/nodejs', ...(process.env.NODE_PATH ?? '').split(':')].filter(Boolean);
	for (const [name, use] of [
		['esbuild', (es) => (code) => es.transformSync(code, { loader: 'ts', tsconfigRaw: { compilerOptions: kept } }).code],
		['typescript', (ts) => (code) => ts.transpileModule(code, { compilerOptions: { target: 'esnext', module: 'esnext', ...kept } }).outputText],
	])
		for (const find of [() => require.resolve(name, { paths: places }), ...places.map((place) => () => require.resolve(path.join(place, name)))])
			try {
				return use(require(find()));
			} catch {
				// not there
			}
	return (process.env.PATH ?? '').split(':').some((folder) => folder && fs.existsSync(path.join(folder, 'esbuild'))) ? (code) => esbuild(code, kept) : null;
}

// The program knows preserveValueImports under one name or the other, by its age, and ignores what it does not know.
function esbuild(code, kept) {
	const { status, stdout, stderr, error } = require('child_process').spawnSync('esbuild', ['--loader=ts', '--log-level=error', '--tsconfig-raw=' + JSON.stringify({ compilerOptions: kept })],
		{ input: code, encoding: 'utf8', maxBuffer: 1 << 26 });
	if (status !== 0)
		throw new Thrown(error ?? new SyntaxError(stderr.trim()));
	return stdout;
}

// ---- The thread that reads. ----

const reader = `
const { parentPort, workerData } = require('worker_threads');
const fs = require('fs');
const net = require('net');
const inspector = require('inspector');
const { shared } = workerData;
const channel = new net.Socket({ fd: ${CHANNEL}, readable: true, writable: false });
let have = [], size = 0;
channel.on('data', (part) => {
	have.push(part);
	size += part.length;
	for (;;) {
		let all = have.length === 1 ? have[0] : null;
		const head = have[0].subarray(0, 32).indexOf(10);
		if (head < 0) {
			if (have.length === 1)
				return;
			have = [Buffer.concat(have)];
			continue;
		}
		const end = head + 1 + Number(have[0].subarray(0, head));
		if (size < end)
			return;
		all ??= Buffer.concat(have);
		take(JSON.parse(all.subarray(head + 1, end)));
		have = [all.subarray(end)];
		size -= end;
		if (size === 0) {
			have = [];
			return;
		}
	}
});
channel.on('close', () => process.kill(process.pid, 'SIGKILL'));
channel.on('error', () => process.kill(process.pid, 'SIGKILL'));

function children(of) {
	try {
		return fs.readdirSync('/proc/' + of + '/task').flatMap((t) => fs.readFileSync('/proc/' + of + '/task/' + t + '/children', 'utf8').split(' ').filter(Boolean));
	} catch {
		return [];
	}
}
let before = new Set();

function take(message) {
	if (message.t !== 'interrupt') {
		before = new Set(children('self'));
		parentPort.postMessage(message);
		return;
	}
	const { id } = message;
	Atomics.store(shared, ${STOP}, id);
	parentPort.postMessage(message);
	const started = children('self').filter((pid) => !before.has(pid));
	for (const pid of started) {
		if (started.length < 1000)
			started.push(...children(pid));
		try {
			process.kill(Number(pid), 'SIGINT');
		} catch {}
	}
	setTimeout(() => {
		if (Atomics.load(shared, ${RUNS}) !== id || Atomics.load(shared, ${NOTICED}) === id)
			return;
		const session = new inspector.Session();
		session.connectToMainThread();
		session.post('Runtime.terminateExecution', () => session.disconnect());
	}, 50);
}
`;

function live(asked) {
	globalThis.require = createRequire(process.cwd() + '/');
	globalThis.__import = load;
	globalThis.display = display;
	for (const name of ['require', '__import', 'display'])
		Object.defineProperty(globalThis, name, { enumerable: false });
	if (asked.language === 'typescript') {
		stripTypes = findTypes();
		if (!stripTypes) {
			send({ t: 'unsupported', reason: 'this node cannot strip types (22.13 and newer can); install the package esbuild or node-typescript' });
			process.reallyExit(0);
		}
	}
	for (const event of ['uncaughtException', 'unhandledRejection'])
		process.on(event, (fault) => {
			process.stderr.write(`Uncaught ${util.inspect(fault)}\n`);
		});
	process.on('SIGINT', () => stop?.());
	process.on('exit', () => session.disconnect()); // node would wait for the debugger
	const worker = new Worker(reader, { eval: true, workerData: { shared }, stdin: false });
	let chain = Promise.resolve();
	worker.on('message', (message) => {
		if (message.t === 'interrupt') {
			if (message.id === shared[RUNS]) {
				Atomics.store(shared, NOTICED, message.id);
				stop();
			}
		} else if (message.t === 'execute') {
			chain = chain.then(() => execute(message, asked.language));
		}
	});
	send({ t: 'ready', driver: 'native', interrupt: 'message', version: process.versions.node });
}

// The first message, before there is a thread: what is asked for.
(() => {
	const read = (size) => {
		const data = Buffer.alloc(size);
		for (let at = 0, n; at < size; at += n) {
			n = fs.readSync(CHANNEL, data, at, size - at, null);
			if (n === 0)
				process.reallyExit(0);
		}
		return data;
	};
	let head = '';
	for (let c; (c = read(1).toString()) !== '\n';)
		head += c;
	live(JSON.parse(read(Number(head))));
})();
