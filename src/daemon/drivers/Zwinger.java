// The Java interpreter of a context: runs cells of code that come over descriptor 3 (protocol.md) by the JShell of the JDK, in this
// process, so that what is printed goes where everything goes and no second machine has to be started.
//
// One thread reads the channel, so that an interrupt arrives while another runs a cell. Descriptors over 2 do not reach programs that
// Java starts. Runs inside the sandbox with the guest's rights, so nothing here is a wall.
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.stream.Collectors;
import jdk.jshell.Diag;
import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.JShellException;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis;

public class Zwinger {
	static final int TEXT_MAX = 1 << 20;
	// As the jshell of the JDK begins.
	static final String[] IMPORTS = {"java.io", "java.math", "java.net", "java.nio.file", "java.util", "java.util.concurrent",
		"java.util.function", "java.util.regex", "java.util.stream"};

	record Cell(int id, Map<String, String> properties, String code) {}

	static InputStream in;
	static FileOutputStream out;
	static JShell shell;
	static volatile int running; // id of the cell
	static volatile boolean stopped;
	static Set<Long> before; // processes that are none of the cell's

	// ---- The channel. ----

	static FileDescriptor descriptor(int number) throws ReflectiveOperationException {
		var constructor = FileDescriptor.class.getDeclaredConstructor(int.class);
		constructor.setAccessible(true);
		return constructor.newInstance(number);
	}

	/** The next message, or null at the end. */
	static String receive() throws IOException {
		int size = 0;
		for (int c; (c = in.read()) != '\n'; size = size * 10 + c - '0')
			if (c < 0)
				return null;
		byte[] body = in.readNBytes(size);
		return body.length == size ? new String(body, StandardCharsets.UTF_8) : null;
	}

	static void send(String message) {
		System.out.flush();
		System.err.flush();
		byte[] body = message.getBytes(StandardCharsets.UTF_8);
		var frame = new ByteArrayOutputStream(body.length + 10);
		frame.writeBytes((body.length + "\n").getBytes(StandardCharsets.US_ASCII));
		frame.writeBytes(body);
		try {
			out.write(frame.toByteArray());
		} catch (IOException gone) {
			Runtime.getRuntime().halt(0);
		}
	}

	static String quote(String text) {
		var b = new StringBuilder("\"");
		for (char c : (text.length() > TEXT_MAX ? text.substring(0, TEXT_MAX) + "..." : text).toCharArray())
			switch (c) {
			case '"', '\\' -> b.append('\\').append(c);
			case '\n' -> b.append("\\n");
			case 0 -> b.append('\ufffd');
			default -> {
				if (c < ' ')
					b.append(String.format("\\u%04x", (int) c));
				else
					b.append(c);
			}
			}
		return b.append('"').toString();
	}

	/** The parts of a message that are read: texts, and where they end. Members come in a fixed order. */
	static class Reader {
		final String text;
		int at;

		Reader(String text) {
			this.text = text;
		}

		void skipTo(String mark) {
			at = text.indexOf(mark, at) + mark.length();
		}

		boolean takes(char c) {
			boolean there = text.charAt(at) == c;
			if (there)
				at++;
			return there;
		}

		String string() {
			var b = new StringBuilder();
			at++;
			for (char c; (c = text.charAt(at++)) != '"';) {
				if (c == '\\')
					switch (c = text.charAt(at++)) {
					case 'n' -> c = '\n';
					case 't' -> c = '\t';
					case 'r' -> c = '\r';
					case 'b' -> c = '\b';
					case 'f' -> c = '\f';
					case 'u' -> {
						c = (char) Integer.parseInt(text, at, at + 4, 16);
						at += 4;
					}
					default -> {}
					}
				b.append(c);
			}
			return b.toString();
		}

		int number() {
			int n = 0;
			for (; Character.isDigit(text.charAt(at)); at++)
				n = n * 10 + text.charAt(at) - '0';
			return n;
		}
	}

	// ---- Cells. ----

	static class Fault extends Exception {
		final String name, traceback;

		Fault(String name, String value, String traceback) {
			super(value, null, false, false);
			this.name = name;
			this.traceback = traceback;
		}
	}

	static String lineOf(String source, long position) {
		int at = (int) Math.min(Math.max(position, 0), source.length());
		int begin = source.lastIndexOf('\n', at - 1) + 1, end = source.indexOf('\n', at);
		return source.substring(begin, end < 0 ? source.length() : end) + "\n" + " ".repeat(at - begin) + "^";
	}

	static Fault rejected(Snippet snippet) {
		var text = new StringBuilder();
		String first = null;
		for (Diag d : shell.diagnostics(snippet).filter(Diag::isError).toList()) {
			String message = d.getMessage(Locale.ROOT);
			first = first == null ? message.lines().findFirst().orElse("") : first;
			text.append("error: ").append(message).append('\n').append(lineOf(snippet.source(), d.getStartPosition())).append('\n');
		}
		return new Fault("CompilationError", first == null ? "this is no Java" : first, text.toString().strip());
	}

	static Fault thrown(JShellException exception) {
		String name = exception instanceof EvalException e ? e.getExceptionClassName() : "UnresolvedReference";
		String value = exception.getMessage() == null ? "" : exception.getMessage();
		var text = new StringBuilder(name).append(value.isEmpty() ? "" : ": ").append(value);
		for (var frame : exception.getStackTrace()) {
			String where = (frame.getClassName().isEmpty() ? "" : frame.getClassName() + ".") + frame.getMethodName();
			text.append("\n\tat ").append(where).append(where.isEmpty() ? "" : " ");
			text.append("(").append(frame.getFileName()).append(":").append(frame.getLineNumber()).append(")");
		}
		if (exception.getCause() instanceof JShellException cause)
			text.append("\nCaused by: ").append(thrown(cause).traceback);
		return new Fault(name, value, text.toString());
	}

	/** What an expression came to, as text; null for what is none. A text stands without its quotes. */
	static String valueOf(SnippetEvent event) {
		boolean shown = switch (event.snippet().subKind()) {
		case TEMP_VAR_EXPRESSION_SUBKIND, VAR_VALUE_SUBKIND, OTHER_EXPRESSION_SUBKIND -> true;
		default -> false;
		};
		String value = shown ? event.value() : null;
		if (value == null || value.length() < 2 || !(value.startsWith("\"") && value.endsWith("\"") || value.startsWith("'") && value.endsWith("'")))
			return value;
		value = value.substring(1, value.length() - 1);
		try {
			return value.translateEscapes(); // it is told as a literal
		} catch (IllegalArgumentException other) {
			return value;
		}
	}

	/** The value of the last expression, or null. */
	static String run(String code) throws Fault {
		SourceCodeAnalysis analysis = shell.sourceCodeAnalysis();
		String value = null;
		for (String rest = code; !rest.isBlank() && !stopped;) {
			var next = analysis.analyzeCompletion(rest);
			if (next.completeness() == SourceCodeAnalysis.Completeness.EMPTY)
				break;
			if (next.source() == null)
				throw new Fault("CompilationError", "the code ends before it is complete", "error: the code ends before it is complete\n" + rest.strip());
			value = null;
			for (SnippetEvent event : shell.eval(next.source())) {
				if (event.causeSnippet() != null)
					continue;
				if (event.status() == Snippet.Status.REJECTED)
					throw rejected(event.snippet());
				if (event.exception() != null)
					throw thrown(event.exception());
				value = valueOf(event);
			}
			rest = next.remaining();
		}
		return value;
	}

	/** Those that this process has started; none where /proc is closed. */
	static List<ProcessHandle> processes() {
		try {
			return ProcessHandle.current().descendants().toList();
		} catch (RuntimeException closed) {
			return List.of();
		}
	}

	/** Not while the one of before is being stopped. */
	static synchronized void runs(int id) {
		running = id;
	}

	static void execute(Cell cell) {
		var earlier = new LinkedHashMap<String, String>();
		cell.properties.forEach((name, value) -> earlier.put(name, System.setProperty(name, value)));
		before = processes().stream().map(ProcessHandle::pid).collect(Collectors.toSet());
		stopped = false;
		runs(cell.id);
		Fault fault = null;
		String value = null;
		try {
			value = run(cell.code);
		} catch (Fault f) {
			fault = f;
		} catch (RuntimeException f) {
			fault = new Fault(f.getClass().getName(), String.valueOf(f.getMessage()), f.toString());
		}
		runs(0);
		boolean hit = stopped;
		String head = "\"id\":" + cell.id + ",";
		if (hit)
			fault = new Fault("Interrupted", "the execution was interrupted", "Interrupted: the execution was interrupted");
		if (fault != null)
			send("{\"t\":\"error\"," + head + "\"error\":{\"name\":" + quote(fault.name) + ",\"value\":" + quote(fault.getMessage()) +
				",\"traceback\":" + quote(fault.traceback) + "}}");
		else if (value != null)
			send("{\"t\":\"result\"," + head + "\"result\":{\"main\":true,\"text\":" + quote(value) + "}}");
		earlier.forEach((name, was) -> {
			if (was == null)
				System.clearProperty(name);
			else
				System.setProperty(name, was);
		});
		send("{\"t\":\"done\"," + head + "\"status\":\"" + (hit ? "interrupted" : fault != null ? "error" : "ok") + "\",\"interrupted\":" + hit + "}");
	}

	/** By what the JDK has to stop a thread; newer ones have less. What is only being compiled cannot be stopped: again, until it is over. */
	static void interrupt(int id) {
		if (running != id)
			return;
		stopped = true;
		processes().stream().filter(p -> !before.contains(p.pid())).forEach(ProcessHandle::destroy);
		var stopper = new Thread(() -> {
			try {
				for (; running == id; Thread.sleep(20))
					stop(id);
			} catch (InterruptedException e) {
				// nobody does
			}
		});
		stopper.setDaemon(true);
		stopper.start();
	}

	static synchronized void stop(int id) {
		if (running != id)
			return;
		try {
			shell.stop();
		} catch (UnsupportedOperationException none) {
			Thread.getAllStackTraces().keySet().stream().filter(t -> t.getThreadGroup() != null &&
				t.getThreadGroup().getName().startsWith("JShell")).forEach(Thread::interrupt);
		}
	}

	static Cell cellOf(Reader r, int id) {
		var properties = new LinkedHashMap<String, String>();
		r.skipTo("\"env\":{");
		while (!r.takes('}')) {
			String name = r.string();
			r.skipTo(":");
			properties.put(name, r.string());
			r.takes(',');
		}
		r.skipTo("\"code\":");
		return new Cell(id, properties, r.string());
	}

	static void begin() {
		System.getenv().forEach((name, value) -> {
			if (System.getProperty(name) == null)
				System.setProperty(name, value);
		});
		shell = JShell.builder().executionEngine("local").build();
		for (String name : IMPORTS)
			shell.eval("import " + name + ".*;");
	}

	public static void main(String[] arguments) throws Exception {
		BlockingQueue<Cell> cells = new LinkedBlockingQueue<>();
		in = new java.io.BufferedInputStream(new FileInputStream(descriptor(3)));
		out = new FileOutputStream(descriptor(3));
		begin();
		var worker = new Thread(() -> {
			for (;;)
				try {
					execute(cells.take());
				} catch (Throwable fault) { // without it nobody would answer any more
					fault.printStackTrace();
					Runtime.getRuntime().halt(70);
				}
		});
		worker.setDaemon(true);
		worker.start();
		for (String message; (message = receive()) != null;) {
			var r = new Reader(message);
			r.skipTo("\"t\":");
			String type = r.string();
			if (type.equals("begin")) {
				send("{\"t\":\"ready\",\"driver\":\"native\",\"interrupt\":\"message\",\"version\":" + quote(Runtime.version().toString()) + "}");
				continue;
			}
			r.skipTo("\"id\":");
			int id = r.number();
			if (type.equals("execute"))
				cells.add(cellOf(r, id));
			else if (type.equals("interrupt"))
				interrupt(id);
		}
		Runtime.getRuntime().halt(0);
	}
}
