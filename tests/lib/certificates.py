"""Certificates for the servers of a test, made with openssl(1)."""
import os
import subprocess
import threading


def openssl(*argv, cwd):
    p = subprocess.run(["openssl", *argv], cwd=cwd, capture_output=True, text=True)
    if p.returncode != 0:
        raise RuntimeError(f"openssl {' '.join(argv)}: {p.stderr[-1000:]}")
    return p.stdout


KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


class Authority:
    """A certification authority in a folder of its own. `path` is its certificate; `issue` gives (certificate, key) of a server."""

    def __init__(self, folder, name):
        self.folder, self.name, self._made, self._lock = folder, name, {}, threading.Lock()
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, "ca.crt")
        openssl("req", "-x509", *KEY, "-keyout", "ca.key", "-out", "ca.crt", "-days", "30", "-subj", f"/O={name}/CN={name}",
                "-addext", "keyUsage=critical,keyCertSign,cRLSign", cwd=folder)

    def issue(self, *names, expired=False):
        """A certificate for these names (addresses as "IP:...")."""
        with self._lock:
            key = (names, expired)
            if key not in self._made:
                self._made[key] = self._issue(f"server{len(self._made)}", names, expired)
            return self._made[key]

    def _issue(self, stem, names, expired):
        san = ",".join(n if n.startswith("IP:") else f"DNS:{n}" for n in names)
        extensions = f"basicConstraints=critical,CA:FALSE\nsubjectAltName={san}\nextendedKeyUsage=serverAuth\n"
        with open(os.path.join(self.folder, stem + ".ext"), "w") as f:
            f.write(extensions)
        openssl("req", *KEY, "-keyout", stem + ".key", "-out", stem + ".csr", "-subj", f"/CN={names[0].replace('IP:', '')[:60]}", cwd=self.folder)
        if expired:
            self._sign_expired(stem)
        else:
            openssl("x509", "-req", "-in", stem + ".csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", stem + ".crt", "-days", "20",
                    "-extfile", stem + ".ext", cwd=self.folder)
        return os.path.join(self.folder, stem + ".crt"), os.path.join(self.folder, stem + ".key")

    def _sign_expired(self, stem):
        """x509(1) gives no dates in the past; ca(1) does."""
        for name, text in (("index", ""), ("serial", "01\n"), ("ca.cnf", "[ca]\ndefault_ca=d\n[d]\ndatabase=index\nserial=serial\nnew_certs_dir=.\n"
                                                              "default_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n")):
            with open(os.path.join(self.folder, name), "w") as f:
                f.write(text)
        openssl("ca", "-batch", "-config", "ca.cnf", "-in", stem + ".csr", "-cert", "ca.crt", "-keyfile", "ca.key", "-out", stem + ".crt", "-notext",
                "-startdate", "20200101000000Z", "-enddate", "20200201000000Z", "-extfile", stem + ".ext", cwd=self.folder)


def self_signed(folder, name):
    """A certificate that nobody vouches for."""
    os.makedirs(folder, exist_ok=True)
    openssl("req", "-x509", *KEY, "-keyout", "self.key", "-out", "self.crt", "-days", "30", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}",
            cwd=folder)
    return os.path.join(folder, "self.crt"), os.path.join(folder, "self.key")
