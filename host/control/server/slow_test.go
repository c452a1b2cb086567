package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// dial opens a connection, and sends the beginning of a request.
func dial(t *testing.T, s *Server, text string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Address().Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return c
}

// code is the status of the answer on a connection, 0 if the server has closed it.
func code(c net.Conn) int {
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode
}

// TestConnections: no more are open at once than there may be, and clients that never end
// their headers hold them only until the server has had enough: then who waits is answered.
func TestConnections(t *testing.T) {
	t.Parallel()
	const most = 3
	s := start(t, Options{connections: connections{all: most, each: most, few: most}})
	for range most {
		dial(t, s, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
	}
	waiting := dial(t, s, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if err := waiting.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := waiting.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection beyond the bound is answered: %v", err)
	}
	if err := waiting.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got := code(waiting); got != http.StatusOK {
		t.Errorf("after the slow ones: %d", got)
	}
}

// TestLargeRequests: of a request with a gigabyte only the header is read, if that says so,
// and else as much as a request may have.
func TestLargeRequests(t *testing.T) {
	t.Parallel()
	read := make(chan int64, 1)
	s := start(t, Options{API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		read <- n
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	})})
	head := "POST /v1/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token + "\r\n"
	if got := code(dial(t, s, fmt.Sprintf("%sContent-Length: %d\r\n\r\n", head, 1<<30))); got != http.StatusRequestEntityTooLarge {
		t.Errorf("announced: %d", got)
	}
	c := dial(t, s, head+"Transfer-Encoding: chunked\r\n\r\n")
	sending := make(chan struct{})
	t.Cleanup(func() { _ = c.Close(); <-sending })
	go func() {
		defer close(sending)
		chunk := fmt.Sprintf("%x\r\n%s\r\n", 64<<10, strings.Repeat("x", 64<<10))
		for range (1 << 30) / (64 << 10) {
			if _, err := c.Write([]byte(chunk)); err != nil {
				return
			}
		}
	}()
	if n := <-read; n > maxBody {
		t.Errorf("%d bytes were read, expected at most %d", n, maxBody)
	}
	if got := code(c); got != http.StatusRequestEntityTooLarge && got != 0 { // closed while we send is as good
		t.Errorf("not announced: %d", got)
	}
}

// TestAnswersAtOnce: clients that do not read documents or metrics hold a bounded number of answers, and no other request waits.
func TestAnswersAtOnce(t *testing.T) {
	t.Parallel()
	begun, ends := make(chan struct{}), make(chan struct{})
	slow := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		select {
		case <-ends:
		case <-r.Context().Done():
		}
	})
	s := start(t, Options{Documents: slow, Metrics: slow})
	defer close(ends)
	for path, most := range map[string]int{"/docs/cluster": documentsAtOnce, "/metrics": metricsAtOnce} {
		request := "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n"
		for range most {
			dial(t, s, request)
			<-begun
		}
		if got := code(dial(t, s, request)); got != http.StatusServiceUnavailable {
			t.Errorf("a further request for %s is answered with %d", path, got)
		}
	}
	if got := code(dial(t, s, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")); got != http.StatusOK {
		t.Errorf("health is answered with %d", got)
	}
}

// TestSignInsAtOnce: while as many pages for signing in are under way as may be, further ones are refused, and probes and who has a token
// are answered.
func TestSignInsAtOnce(t *testing.T) {
	t.Parallel()
	begun, ends := make(chan struct{}), make(chan struct{})
	s := start(t, Options{Access: Access{Login: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-ends
	})}})
	var asked []net.Conn
	for range signInsAtOnce {
		asked = append(asked, dial(t, s, "GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n"))
		<-begun
	}
	refused := dial(t, s, strings.Repeat("GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n", 1000))
	answers := bufio.NewReader(refused)
	resp, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one more is answered with %d", resp.StatusCode)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}
	if resp, err := http.ReadResponse(answers, nil); err == nil {
		t.Errorf("what was sent behind it without waiting is answered with %d", resp.StatusCode)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if got := code(dial(t, s, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")); got != http.StatusOK {
			t.Errorf("%s is answered with %d", path, got)
		}
	}
	posted := dial(t, s, "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
	<-begun // it does not wait for those who look
	close(ends)
	for _, c := range append(asked, posted) {
		if got := code(c); got != http.StatusOK {
			t.Errorf("answered with %d", got)
		}
	}
}
