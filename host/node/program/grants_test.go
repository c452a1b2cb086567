package program

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/config/signature"
	"github.com/wasmjob/wasmjob/test/wasm"
)

// caller is a module that imports from capabilities.
func caller() []byte {
	m := wasm.New()
	m.Import("job_v1_http", "open", "ii", "i")
	m.Import("job_v1_io", "wait", "i", "i")
	f := m.Func("", "i", "", wasm.I32Const(0))
	m.Memory(1, 1)
	m.ExportMemory("memory")
	m.Export("job_abi_v1", m.Func("", "", "", nil))
	m.Export("job_execute", f)
	return m.Bytes()
}

// bench is a directory with files, and paths in it.
type bench struct {
	t   *testing.T
	dir string
}

func newBench(t *testing.T) bench { return bench{t, t.TempDir()} }

func (b bench) at(name string) string { return filepath.Join(b.dir, name) }

func (b bench) write(name, text string) string {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Dir(b.at(name)), 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(b.at(name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return b.at(name)
}

const someGrants = `grants:
  - jobs: report
    http: [{url: "https://api.example.com/v1/", secrets: [TOKEN]}]
    secrets: {TOKEN: {env: TOKEN}}
  - jobs: other
    kv: true
`

func TestGrantsCommand(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	file := b.write("grants.yaml", someGrants)
	module := b.write("report.wasm", string(caller()))

	r := runCLI(t, nil, "access", "grants", "--grants", file)
	r.expect(t, exitOK, "JOBS", "report", "https://api.example.com/v1/", "grants.yaml:2", "GET HEAD, with the secrets TOKEN", "other", "key/value state")
	if strings.Contains(runCLI(t, []string{"WASMJOB_GRANTS=" + file}, "access", "grants", "other").out, "report") {
		t.Error("a job is shown what another gets")
	}
	runCLI(t, nil, "access", "grants", "none", "--grants", file).expect(t, exitOK, "nothing is granted")
	runCLI(t, nil, "access", "grants", "report", "--grants", file, "--module", module).expect(t, exitOK,
		"signer  -", "http (the module imports job_v1_http)  yes")
	runCLI(t, nil, "access", "grants", "other", "--grants", file, "--module", module).expect(t, exitFailure, "no: grants.yaml has no http for it")
	r = runCLI(t, nil, "access", "grants", "other", "--grants", file, "--module", module, "--json")
	var report struct {
		Digest string
		Grants []grants.Line
		Wants  []grants.Want
	}
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || r.code != exitFailure || len(report.Grants) != 1 || len(report.Wants) != 1 || len(report.Digest) != 64 {
		t.Errorf("%d, %v: %s", r.code, err, r.out)
	}

	runCLI(t, nil, "access", "grants", "report", "--module", module).expect(t, exitUsage, "--module is compared with files: name them with --grants")
	runCLI(t, nil, "access", "grants", "--grants", file, "--admin", "127.0.0.1:1").expect(t, exitUsage, "--grants is about files, --admin about a host that runs")
	runCLI(t, []string{"WASMJOB_GRANTS=" + file}, "access", "grants", "--admin", "127.0.0.1:1").expect(t, exitFailure, "127.0.0.1:1")
	runCLI(t, nil, "access", "grants", "--grants", file, "--module", module).expect(t, exitUsage, "--module is about one job")
	runCLI(t, nil, "access", "grants", "--grants", b.at("none")).expect(t, exitUsage, "none: cannot be read: it does not exist")
	runCLI(t, nil, "access", "grants", "--grants", b.write("broken.yaml", "grants: [{jobs: a, kv: 1}]")).expect(t, exitUsage,
		`broken.yaml:1:24: kv: found "1", expected true or false`)
}

// A host does not start with grants that are broken, and says where.
func TestHostRefusesBrokenGrants(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	plugins, file := b.at("."), b.write("broken.yaml", "grants: [{jobs: a, htp: []}]")
	runCLI(t, nil, "run", "--plugins", plugins, "--grants", file).expect(t, exitUsage,
		"--grants: ", `broken.yaml:1:20: unknown field "htp"; did you mean "http"?`)
	runCLI(t, []string{"WASMJOB_GRANTS=" + b.at("none")}, "run", "--plugins", plugins).expect(t, exitUsage, "WASMJOB_GRANTS: ", "it does not exist")
	conf := b.write("conf.yaml", "plugins: "+plugins+"\ngrants: "+file+"\n")
	runCLI(t, nil, "run", "--config", conf).expect(t, exitUsage, "conf.yaml:2: grants: ")
	runCLI(t, nil, "run", "--plugins", plugins, "--grants", file, "--print-config").expect(t, exitOK, "grants: "+file)
	l, err := loadConfig([]string{"WASMJOB_PLUGINS=" + plugins, "WASMJOB_GRANTS=" + b.write("good.yaml", someGrants)}, pflag.NewFlagSet("none", pflag.ContinueOnError), defaults{})
	if err != nil || !l.GrantSet.For("other", grants.Module{}).KV {
		t.Errorf("%v", err)
	}
}

func TestValidateGrants(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("jobs/report.wasm", string(caller()))
	b.write("jobs/report.yaml", "shardingTotalCount: 1\nneeds: [http POST https://api.example.com/v1/, secret TOKEN, kv]\n")
	file := b.write("grants.yaml", someGrants)
	jobs := b.at("jobs")
	runCLI(t, nil, "validate", jobs, "--cache", "off").expect(t, exitFailure, "which is not granted to the job (--grants)")
	plain, err := os.ReadFile(guest)
	if err != nil {
		t.Fatal(err)
	}
	b.write("needs/one.wasm", string(plain))
	b.write("needs/one.yaml", "shardingTotalCount: 1\ntype: SIMPLE\nneeds: [secret TOKEN, dir /in]\n")
	runCLI(t, nil, "validate", b.at("needs"), "--cache", "off").expect(t, exitOK,
		`one.yaml:1: warning: job "one" needs secret TOKEN, dir /in: whether that is granted was not checked; --grants FILE does`)
	runCLI(t, nil, "validate", jobs, "--cache", "off", "--grants", file).expect(t, exitFailure,
		"report.yaml:1: job \"report\" wants kv: grants.yaml has no kv for it", "secret TOKEN", "yes",
		"wants http POST https://api.example.com/v1/: grants.yaml:3 has GET, HEAD for https://api.example.com/v1/",
		`warning: grants.yaml:5: there is no job that matches "other"`)
	enough := b.write("enough.yaml", "grants: [{jobs: rep*, http: [{url: 'https://api.example.com', methods: POST}], kv: true, secrets: {TOKEN: {env: PATH}}}]")
	runCLI(t, nil, "validate", b.at("jobs/report.yaml"), "--cache", "off", "--grants", enough).expect(t, exitOK, "ok\n", "http (the module imports job_v1_http)")
	r := runCLI(t, nil, "validate", jobs, "--cache", "off", "--grants", b.write("broken.yaml", "grants: [{jobs: a, kv: 1}]"), "--json")
	r.expect(t, exitFailure, `"problem": "kv: found \"1\", expected true or false"`, `"column": 24`)

	signed := b.write("signed.yaml", "keys: {k: RWQstpHh+qxJIJqtWqk9JviMjZ0Z/LgruMp5nGSBUnV5NkE/MBENguTM}\ntrust: [{jobs: report, keys: [k]}]")
	runCLI(t, nil, "validate", jobs, "--cache", "off", "--grants", signed).expect(t, exitFailure,
		`module report.wasm: there is no signature; signed.yaml:2 demands one by k for job "report"`)
	b.write("jobs/report.wasm.minisig", "nonsense")
	runCLI(t, nil, "validate", jobs, "--cache", "off", "--grants", signed).expect(t, exitFailure, "the signature is malformed")
}

// TestGrantsThatCannotBeUsed: what is granted and cannot work is a warning, of the job that it is for.
func TestGrantsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("jobs/report.wasm", string(caller()))
	definition := b.write("jobs/report.yaml", "shardingTotalCount: 1\n")
	file := b.write("grants.yaml", `grants:
  - jobs: report
    secrets: {TOKEN: {file: none}}
    dirs: [{host: nowhere, guest: /out, write: true}]
    http: ["http://127.0.0.1:8080/", "http://8.8.8.8/", {url: "http://10.0.0.1/", private: true}]
    net: ["tcp://localhost:5432"]
  - jobs: other
    secrets: {OTHER: {file: missing}}
`)
	want := []string{"grants.yaml:3: the file " + b.at("none") + " cannot be used now", "grants.yaml:4: the directory " + b.at("nowhere") + " cannot be used now",
		"grants.yaml:5: http://127.0.0.1:8080/ is refused when it is used: the address 127.0.0.1 is not public", "a grant allows it with private: true",
		"grants.yaml:6: tcp://localhost:5432 is refused when it is used"}
	for _, args := range [][]string{{"access", "grants", "report", "--grants", file}, {"validate", definition, "--cache", "off", "--grants", file}} {
		r := runCLI(t, nil, args...)
		r.expect(t, exitOK, append(want, "warning: ")...)
		for _, other := range []string{"missing", "8.8.8.8/ is refused", "10.0.0.1/ is refused"} {
			if strings.Contains(r.out, other) {
				t.Errorf("%q is in\n%s", other, r.out)
			}
		}
	}
	runCLI(t, nil, "validate", b.at("jobs"), "--cache", "off", "--grants", file).expect(t, exitOK, append(want, "missing cannot be used now")...)
	runCLI(t, nil, "access", "grants", "report", "--grants", file, "--json").expect(t, exitOK, `"warnings": [`)
	runCLI(t, nil, "access", "grants", "report", "--grants", file, "-o", "yaml").expect(t, exitOK, "warnings:\n")
	runCLI(t, nil, "validate", definition, "--cache", "off", "--grants", file, "-o", "yaml").expect(t, exitOK, "warning: true")
	runCLI(t, nil, "validate", definition, "--cache", "off", "-o", "xml").expect(t, exitUsage, "--output", `found "xml", expected table, json or yaml`)
	runCLI(t, nil, "module", "inspect", b.at("jobs/report.wasm"), "-o", "yaml").expect(t, exitOK, "digest: ")
	runCLI(t, nil, "job", "next", "@hourly", "--count", "1", "-o", "json", "--from", "2026-03-01", "--zone", "UTC").expect(t, exitOK, `"2026-03-01T01:00:00Z"`)
}

func TestInspectShowsWhatIsWanted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	module, file := b.write("report.wasm", string(caller())), b.write("grants.yaml", someGrants)
	r := runCLI(t, nil, "module", "inspect", module)
	r.expect(t, exitOK, "wants      http (the module imports job_v1_http)\n")
	if strings.Contains(r.out, "missing") {
		t.Errorf("something is missing though no grants were named:\n%s", r.out)
	}
	runCLI(t, nil, "module", "inspect", module, "--grants", file).expect(t, exitOK, "wants ")
	runCLI(t, nil, "module", "inspect", module, "--grants", file, "--job", "other").expect(t, exitFailure, "missing: grants.yaml has no http for it")
	runCLI(t, nil, "module", "inspect", module, "--grants", file, "--job", "other", "--json").expect(t, exitFailure, `"missing": "grants.yaml has no http for it"`, `"digest"`)
}

func TestInvokeGrant(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	o := &invocation{mounts: []string{b.dir + ":/data"}, env: []string{"A=flag"}, pluginConfig: "text", logLevel: "info", forms: shortForms{
		http: []string{"http://127.0.0.1:8080/v1/", "https://*.example.com"}, net: []string{"tcp://localhost:5432"},
		secrets: []string{"TOKEN=env:HOME", "OTHER=file:" + b.at("x")}, kv: true,
	}}
	o.File = b.write("report.wasm", string(caller()))
	var err error
	if o.granted, err = grants.Read(b.write("grants.yaml", "grants: [{jobs: report, env: {A: file, B: file}, net: ['tcp://db:1']}]")); err != nil {
		t.Fatal(err)
	}
	if err := o.read(); err != nil {
		t.Fatal(err)
	}
	g, err := o.grant(caller())
	if err != nil {
		t.Fatal(err)
	}
	if !g.KV || g.Env["A"] != "flag" || g.Env["B"] != "file" || string(g.Config) != "text" || len(g.Net) != 2 || len(g.Secrets) != 2 ||
		len(g.Dirs) != 1 || g.Dirs[0] != (grants.Dir{Host: b.dir, Guest: "/data"}) {
		t.Errorf("%+v", g)
	}
	u, err := url.Parse("http://127.0.0.1:8080/v1/x")
	if err != nil {
		t.Fatal(err)
	}
	if h, err := g.AllowHTTP("DELETE", u); err != nil || !h.Private || len(h.Secrets) != 2 {
		t.Errorf("%+v, %v", h, err)
	}
	if g.HTTP[1].Private {
		t.Error("every host below a domain may be private")
	}

	// A module that is not signed, where the job's must be.
	o.granted, err = grants.Read(b.write("grants.yaml", "keys: {k: RWQstpHh+qxJIJqtWqk9JviMjZ0Z/LgruMp5nGSBUnV5NkE/MBENguTM}\ntrust: [{jobs: '*', keys: k}]"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.grant(caller()); err == nil || !strings.Contains(err.Error(), "there is no signature") {
		t.Errorf("not signed: %v", err)
	}

	runCLI(t, nil, "invoke", o.File, "--http-allow", "ftp://x", "--net-allow", "x", "--secret", "A=geheim", "--secret", "B", "--secret", "C=fil:x").expect(t, exitUsage,
		`--http-allow: found "ftp://x"`, `--net-allow: found "x", expected tcp://HOST:PORT`, "--secret: A: expected NAME=file:PATH", "--secret: found no =", `did you mean "file"?`)
	if r := runCLI(t, nil, "invoke", o.File, "--secret", "A=geheim"); strings.Contains(r.err, "geheim") {
		t.Errorf("a secret is shown: %s", r.err)
	}
	runCLI(t, nil, "invoke", o.File, "--grants", b.at("none")).expect(t, exitUsage, "--grants: ", "it does not exist")
}

func TestSign(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	module := b.write("report.wasm", string(caller()))
	release, other := b.at("release"), b.at("other")
	runCLI(t, nil, "module", "sign", "--new-key", release, "--no-password").expect(t, exitOK, "release.key signs, keep it secret", "  keys:\n    release: RW")
	runCLI(t, nil, "module", "sign", "--new-key", release, "--no-password").expect(t, exitFailure, "release.key exists already")
	runCLI(t, nil, "module", "sign", "--new-key", other, "--no-password").expect(t, exitOK)
	if info, err := os.Stat(release + ".key"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the private key: %v, %v", info.Mode(), err)
	}
	verify := func(key string) result {
		t.Helper()
		return runCLI(t, nil, "module", "verify-signature", module, "--key", key+".pub")
	}
	verify(release).expect(t, exitFailure, "report.wasm: there is no signature")
	runCLI(t, nil, "module", "sign", module, "--key", release+".key").expect(t, exitOK, "report.wasm.minisig is signed by ")
	verify(release).expect(t, exitOK, "is signed by release (timestamp:", "file:report.wasm")
	verify(other).expect(t, exitFailure, "the signature is by an unknown key")

	public, err := os.ReadFile(release + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Split(string(public), "\n")[1]
	runCLI(t, nil, "module", "verify-signature", module, "--key", line).expect(t, exitOK)
	granted := b.write("grants.yaml", "keys: {ours: "+line+"}\ntrust: [{jobs: report, keys: ours}]")
	runCLI(t, nil, "module", "verify-signature", module, "--grants", granted).expect(t, exitOK, "is signed by ours")
	runCLI(t, nil, "access", "grants", "report", "--grants", granted, "--module", module).expect(t, exitFailure, "signer  ours", "modules must be signed by ours", "no: grants.yaml has no http")

	// The module is changed after it was signed, and signed anew by another key.
	if err := os.WriteFile(module, append(caller(), 0, 2, 1, 'x'), 0o600); err != nil {
		t.Fatal(err)
	}
	verify(release).expect(t, exitFailure, "the signature is of another file, or the module was changed")
	runCLI(t, nil, "access", "grants", "report", "--grants", granted, "--module", module).expect(t, exitFailure, "refused the signature is of another file")
	runCLI(t, nil, "module", "sign", module, "--key", other+".key").expect(t, exitOK)
	verify(release).expect(t, exitFailure, "by an unknown key")
	b.write("report.wasm"+signature.Suffix, "cut")
	verify(release).expect(t, exitFailure, "malformed")

	runCLI(t, nil, "module", "sign").expect(t, exitUsage, "the module's file is missing")
	runCLI(t, nil, "module", "sign", module).expect(t, exitUsage, "--key is missing")
	runCLI(t, nil, "module", "sign", module, "--new-key", "x").expect(t, exitUsage, "--new-key makes a key")
	runCLI(t, nil, "module", "sign", module, "--key", release+".pub").expect(t, exitFailure, "no private key of minisign")
	runCLI(t, nil, "module", "sign", "--new-key", b.at("third")).expect(t, exitUsage, "there is no terminal to ask for it")
	runCLI(t, nil, "module", "verify-signature", module).expect(t, exitUsage, "there is no key")
	runCLI(t, nil, "module", "verify-signature", module, "--key", module).expect(t, exitUsage, "no public key of minisign")
	runCLI(t, nil, "module", "verify-signature", module, "--key", b.at("none")).expect(t, exitUsage, "--key: ")
}

func TestSignWithPassword(t *testing.T) {
	t.Parallel()
	const keys = "../../config/signature/testdata/"
	b := newBench(t)
	module, password := b.write("report.wasm", string(caller())), b.write("password", "open sesame\n")
	sign := func(environ []string, more ...string) result {
		t.Helper()
		return runCLI(t, environ, append([]string{"module", "sign", module, "--key", keys + "encrypted.key"}, more...)...)
	}
	sign(nil).expect(t, exitUsage, "a password is needed, and there is no terminal")
	sign([]string{"WASMJOB_SIGN_PASSWORD=shut"}).expect(t, exitFailure, "encrypted.key: the key is encrypted, and this is not its password")
	sign(nil, "--password-file", b.at("none")).expect(t, exitFailure, "--password-file: ")
	sign(nil, "--password-file", password).expect(t, exitOK)
	sign([]string{"WASMJOB_SIGN_PASSWORD=open sesame"}).expect(t, exitOK)
	runCLI(t, nil, "module", "verify-signature", module, "--key", keys+"minisign.pub").expect(t, exitOK, "is signed by minisign")
	runCLI(t, nil, "module", "sign", "--new-key", b.at("k"), "--password-file", b.write("nothing", "\n")).expect(t, exitUsage, "the password is empty")
}
