"""model.py PORT_FILE: stands for a model. Speaks the chat completions of most servers of models, and always plays the same piece: code with a fault, better code, an answer."""
import http.server
import json
import os
import sys

CODE = ["I keep the numbers.\n```python\nvalues = [3, 5, 10]\nmean(values)\n```", "There is no such function; the numbers are still there.\n```python\nprint(len(values))\nsum(values) / len(values)\n```"]


class Model(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
        turn, came = sum(m["role"] == "assistant" for m in messages), messages[-1]["content"]
        expected = turn == 0 or (turn == 1 and "NameError" in came) or (turn == 2 and came == "3\n6.0")
        said = f"I cannot go on from: {came}" if not expected else CODE[turn] if turn < len(CODE) else "The mean of the 3 numbers is 6.0."
        body = json.dumps({"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Model)
with open(sys.argv[1] + ".new", "w") as f:
    f.write(f"{server.server_port}\n")
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
