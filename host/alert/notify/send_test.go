package notify_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/alert/notify"
)

// trusted is a certificate that this process takes for valid.
var trusted tls.Certificate

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "certificates")
	if err == nil {
		trusted, err = selfSigned()
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "ca.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: trusted.Certificate[0]}), 0o600)
	}
	if err == nil {
		err = os.Setenv("SSL_CERT_FILE", filepath.Join(dir, "ca.pem")) // before anything asks for the system's
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func number(n int) *int { return &n }

func message() *alert.Message {
	return &alert.Message{Route: "all", Receiver: "r", Group: "job report", New: 1, Firing: []alert.Alert{
		{ID: "aa", Rule: alert.Failures, Job: "report", Item: number(3), Text: "item 3 of report failed: <no> file & no ✓", Since: noon},
		{ID: "bb", Rule: alert.Lost, Job: "report", Text: "older", Since: noon},
	}, Over: []alert.Alert{{ID: "cc", Rule: alert.Held, Job: "report", Text: "held", Since: noon, Resolved: noon.Add(time.Minute), Why: "it was released"}}}
}

// request is what a server got.
type request struct {
	path, query string
	header      http.Header
	body        map[string]any
}

// listens starts a server that answers with a status and a text.
func listens(t *testing.T, status int, answer string) (url string, got func() []request) {
	t.Helper()
	var mu sync.Mutex
	var all []request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make(map[string]any)
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		mu.Lock()
		all = append(all, request{r.URL.Path, r.URL.RawQuery, r.Header, body})
		mu.Unlock()
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() []request {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func sender(t *testing.T) *notify.Sender {
	s := notify.New()
	t.Cleanup(s.Close)
	return s
}

func sign(key, text string) string {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// TestSend_robots: each receiver gets what its interface wants.
func TestSend_robots(t *testing.T) {
	t.Parallel()
	const title = "ALERT: report (1 new of 2)\n"
	text := func(body map[string]any, path ...string) string {
		for _, key := range path[:len(path)-1] {
			body, _ = body[key].(map[string]any)
		}
		s, _ := body[path[len(path)-1]].(string)
		return s
	}
	for name, c := range map[string]struct {
		answer   string
		receiver func(url string) alert.Receiver
		check    func(t *testing.T, r request)
	}{
		"slack": {"ok", func(url string) alert.Receiver {
			return alert.Receiver{Kind: alert.Slack, URLFile: file(t, url+"/services/T/B/x\n")}
		}, func(t *testing.T, r request) {
			if got := text(r.body, "text"); r.path != "/services/T/B/x" || !strings.HasPrefix(got, title) || !strings.Contains(got, "&lt;no&gt; file &amp; no") {
				t.Errorf("%+v", r)
			}
		}},
		"dingtalk": {`{"errcode":0,"errmsg":"ok"}`, func(url string) alert.Receiver {
			return alert.Receiver{Kind: alert.DingTalk, URL: url + "/robot/send?access_token=x", SecretFile: file(t, "SECabc")}
		}, func(t *testing.T, r request) {
			q := mustQuery(t, r.query)
			if r.body["msgtype"] != "text" || !strings.HasPrefix(text(r.body, "text", "content"), title) || q["access_token"][0] != "x" || q["sign"][0] != sign("SECabc", q["timestamp"][0]+"\nSECabc") {
				t.Errorf("%+v", r)
			}
		}},
		"wecom": {`{"errcode":0}`, func(url string) alert.Receiver {
			return alert.Receiver{Kind: alert.WeCom, URL: url + "/cgi-bin/webhook/send?key=x"}
		}, func(t *testing.T, r request) {
			if r.body["msgtype"] != "text" || !strings.HasPrefix(text(r.body, "text", "content"), title) {
				t.Errorf("%+v", r)
			}
		}},
		"feishu": {`{"code":0,"msg":"success"}`, func(url string) alert.Receiver {
			return alert.Receiver{Kind: alert.Feishu, URL: url + "/hook", SecretFile: file(t, "key")}
		}, func(t *testing.T, r request) {
			if r.body["msg_type"] != "text" || !strings.HasPrefix(text(r.body, "content", "text"), title) || r.body["sign"] != sign(fmt.Sprint(r.body["timestamp"])+"\nkey", "") {
				t.Errorf("%+v", r)
			}
		}},
		"telegram": {`{"ok":true}`, func(url string) alert.Receiver {
			return alert.Receiver{Kind: alert.Telegram, URL: url, Chat: "-100", SecretFile: file(t, "1:token")}
		}, func(t *testing.T, r request) {
			if r.path != "/bot1:token/sendMessage" || r.body["chat_id"] != "-100" || !strings.HasPrefix(text(r.body, "text"), title) {
				t.Errorf("%+v", r)
			}
		}},
		"webhook": {"", func(url string) alert.Receiver {
			return alert.Receiver{Kind: alert.Webhook, URL: url + "/in", SecretFile: file(t, "tok")}
		}, func(t *testing.T, r request) {
			alerts, _ := r.body["alerts"].([]any)
			if r.header.Get("Authorization") != "Bearer tok" || r.body["status"] != "firing" || r.body["route"] != "all" || len(alerts) != 3 {
				t.Fatalf("%+v", r)
			}
			one, _ := alerts[0].(map[string]any)
			last, _ := alerts[2].(map[string]any)
			if one["id"] != "aa" || one["new"] != true || one["item"] != 3.0 || one["rule"] != "failures" || last["status"] != "resolved" || last["why"] != "it was released" {
				t.Errorf("%+v", alerts)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, got := listens(t, http.StatusOK, c.answer)
			if err := sender(t).Send(t.Context(), c.receiver(url), message()); err != nil {
				t.Fatal(err)
			}
			if len(got()) != 1 {
				t.Fatalf("%d requests", len(got()))
			}
			c.check(t, got()[0])
		})
	}
}

func mustQuery(t *testing.T, text string) map[string][]string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/?"+text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.URL.Query()
}

// TestSend_failures: what went wrong is said, and no secret with it.
func TestSend_failures(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	refuses, _ := listens(t, http.StatusForbidden, "invalid_token\nmore")
	codes, _ := listens(t, http.StatusOK, `{"errcode":310000,"errmsg":"keywords not in content"}`)
	nothing, _ := listens(t, http.StatusOK, `{}`)
	page, _ := listens(t, http.StatusOK, "<html>")
	bot, _ := listens(t, http.StatusOK, `{"ok":false,"description":"chat not found"}`)
	elsewhere, _ := listens(t, http.StatusFound, "")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		receiver alert.Receiver
		want     string
	}{
		"refused":        {alert.Receiver{Kind: alert.Slack, URL: refuses + "/" + secret}, "answered 403 Forbidden: invalid_token"},
		"a code":         {alert.Receiver{Kind: alert.DingTalk, URL: codes + "/?access_token=" + secret}, "refused the message: code 310000, keywords not in content"},
		"no code":        {alert.Receiver{Kind: alert.WeCom, URL: nothing}, "did not say that it has taken the message"},
		"a page":         {alert.Receiver{Kind: alert.Feishu, URL: page}, "not JSON"},
		"telegram":       {alert.Receiver{Kind: alert.Telegram, URL: bot, SecretFile: file(t, secret)}, "did not take the message: chat not found"},
		"redirected":     {alert.Receiver{Kind: alert.Webhook, URL: elsewhere}, "answered 302 Found"},
		"nobody there":   {alert.Receiver{Kind: alert.Webhook, URL: closed + "/" + secret}, "connection refused"},
		"no file":        {alert.Receiver{Kind: alert.Slack, URLFile: "/nonexistent/file"}, "/nonexistent/file cannot be read: it does not exist"},
		"an empty file":  {alert.Receiver{Kind: alert.Slack, URLFile: file(t, "\n")}, "expected one line with a secret"},
		"two lines":      {alert.Receiver{Kind: alert.Slack, URLFile: file(t, secret+"\n"+secret)}, "expected one line with a secret"},
		"no url":         {alert.Receiver{Kind: alert.Slack, URLFile: file(t, secret)}, "expected https or http"},
		"mail: no one":   {alert.Receiver{Kind: alert.Email, Server: strings.TrimPrefix(closed, "http://"), To: []string{"a@b.c"}, From: "a@b.c"}, "connection refused"},
		"mail: no file":  {alert.Receiver{Kind: alert.Email, Server: "x:25", User: "u", SecretFile: "/nonexistent/file"}, "/nonexistent/file cannot be read"},
		"no such a kind": {alert.Receiver{Kind: "sms"}, `no receiver of the kind "sms"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := sender(t).Send(t.Context(), c.receiver, message())
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
	t.Run("a secret that everybody can write to", func(t *testing.T) {
		t.Parallel()
		name := file(t, secret)
		if err := os.Chmod(name, 0o666); err != nil {
			t.Fatal(err)
		}
		err := sender(t).Send(t.Context(), alert.Receiver{Kind: alert.Telegram, URL: bot, SecretFile: name}, message())
		if refused := err != nil && strings.Contains(err.Error(), name+": has mode 0666"); refused != (os.Geteuid() == 0) {
			t.Error(err)
		}
	})
	t.Run("an end", func(t *testing.T) {
		t.Parallel()
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		for _, r := range []alert.Receiver{{Kind: alert.Webhook, URL: "http://" + silent.Addr().String()}, {Kind: alert.Email, Server: silent.Addr().String(), To: []string{"a@b.c"}, From: "a@b.c"}} {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			began := time.Now()
			err := sender(t).Send(ctx, r, message())
			cancel()
			if err == nil || time.Since(began) > notify.Timeout/2 {
				t.Errorf("%s: %v after %s", r.Kind, err, time.Since(began))
			}
		}
	})
}

// post is a server of e-mail, as far as it takes letters.
type post struct {
	t       *testing.T
	address string
	tls     *tls.Config
	offers  bool // STARTTLS
	mu      sync.Mutex
	letters []string
	said    []string
}

func mailServer(t *testing.T, offers bool, certificate *tls.Certificate) *post {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &post{t: t, address: l.Addr().String(), offers: offers}
	if certificate != nil {
		p.tls = &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return p
}

func (p *post) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	r := bufio.NewReader(conn)
	say := func(line string) { _, _ = io.WriteString(conn, line+"\r\n") }
	say("220 test")
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSpace(line)
		p.mu.Lock()
		p.said = append(p.said, line)
		p.mu.Unlock()
		switch verb := strings.ToUpper(strings.Fields(line + " ?")[0]); verb {
		case "EHLO", "HELO":
			say("250-test")
			if p.offers {
				say("250-STARTTLS")
			}
			say("250 AUTH PLAIN")
		case "STARTTLS":
			say("220 go")
			conn = tls.Server(conn, p.tls)
			r = bufio.NewReader(conn)
		case "AUTH":
			if want := "AUTH PLAIN " + base64.StdEncoding.EncodeToString([]byte("\x00ops\x00p4ss")); line != want {
				say("535 no")
				continue
			}
			say("235 ok")
		case "RCPT":
			if strings.Contains(line, "nobody") {
				say("550 no such user")
				continue
			}
			say("250 ok")
		case "DATA":
			say("354 go")
			var b strings.Builder
			for {
				l, err := r.ReadString('\n')
				if err != nil || l == ".\r\n" {
					break
				}
				b.WriteString(strings.TrimPrefix(l, "."))
			}
			p.mu.Lock()
			p.letters = append(p.letters, b.String())
			p.mu.Unlock()
			say("250 taken")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

// TestSend_mail: a letter comes whole, with TLS where there is any.
func TestSend_mail(t *testing.T) {
	t.Parallel()
	p := mailServer(t, false, nil)
	plain := alert.Receiver{Kind: alert.Email, Server: p.address, To: []string{"ops@example.com", "night@example.com"}, From: "wasmjob@example.com", Plain: true}
	if err := sender(t).Send(t.Context(), plain, message()); err != nil {
		t.Fatal(err)
	}
	if len(p.letters) != 1 {
		t.Fatalf("%q", p.said)
	}
	m, err := mail.ReadMessage(strings.NewReader(p.letters[0]))
	if err != nil {
		t.Fatal(err)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	if err != nil || subject != "ALERT: report (1 new of 2)" || m.Header.Get("To") != "ops@example.com, night@example.com" || m.Header.Get("Auto-Submitted") != "auto-generated" {
		t.Errorf("%q, %v, %+v", subject, err, m.Header)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	if err != nil || !strings.Contains(string(body), "- item 3 of report failed: <no> file & no ✓ [failures,") {
		t.Errorf("%s, %v", body, err)
	}
	said := strings.Join(p.said, "\n")
	for _, want := range []string{"MAIL FROM:<wasmjob@example.com>", "RCPT TO:<ops@example.com>", "RCPT TO:<night@example.com>"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q was not said in\n%s", want, said)
		}
	}

	// Without TLS nothing is sent, unless that is wanted.
	secure := plain
	secure.Plain = false
	if err := sender(t).Send(t.Context(), secure, message()); err == nil || !strings.Contains(err.Error(), "offers no TLS (STARTTLS)") {
		t.Error(err)
	}
}

// TestSend_mailTLS: with TLS, and a password after that; a certificate that is not valid is
// refused before the password is sent.
func TestSend_mailTLS(t *testing.T) {
	t.Parallel()
	p := mailServer(t, true, &trusted)
	r := alert.Receiver{Kind: alert.Email, Server: p.address, To: []string{"a@b.c"}, From: "a@b.c", User: "ops", SecretFile: file(t, "p4ss\n")}
	if err := sender(t).Send(t.Context(), r, message()); err != nil {
		t.Fatal(err)
	}
	if said := strings.Join(p.said, "\n"); len(p.letters) != 1 || strings.Index(said, "AUTH") < strings.Index(said, "STARTTLS") {
		t.Errorf("said %s", said)
	}
	r.SecretFile = file(t, "wrong")
	if err := sender(t).Send(t.Context(), r, message()); err == nil || !strings.Contains(err.Error(), "does not take the user and the password") || strings.Contains(err.Error(), "wrong") {
		t.Error(err)
	}

	certificate, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	p = mailServer(t, true, &certificate)
	r.Server = p.address
	err = sender(t).Send(t.Context(), r, message())
	if err == nil || !strings.Contains(err.Error(), "TLS") || strings.Contains(strings.Join(p.said, "\n"), "AUTH") {
		t.Errorf("%v, said %q", err, p.said)
	}
}

// selfSigned is a certificate that signs itself.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// TestSend_mailRefused: a recipient that the server refuses keeps the letter from no other, and is
// named; if it takes none, nothing was sent.
func TestSend_mailRefused(t *testing.T) {
	t.Parallel()
	p := mailServer(t, false, nil)
	r := alert.Receiver{Kind: alert.Email, Server: p.address, To: []string{"nobody@example.com", "ops@example.com"}, From: "wasmjob@example.com", Plain: true}
	err := sender(t).Send(t.Context(), r, message())
	if _, partly := errors.AsType[*alert.PartlyError](err); !partly || !strings.Contains(err.Error(), `nobody@example.com: 550 "no such user"`) {
		t.Errorf("%v", err)
	}
	if len(p.letters) != 1 {
		t.Errorf("%d letters; said %q", len(p.letters), p.said)
	}
	r.To = []string{"nobody@example.com"}
	err = sender(t).Send(t.Context(), r, message())
	if _, partly := errors.AsType[*alert.PartlyError](err); partly || err == nil || len(p.letters) != 1 {
		t.Errorf("%v, %d letters", err, len(p.letters))
	}
}
