// Package handler is the handler of the guest outside.
package handler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/env"
	"github.com/wasmjob/wasmjob/sdk/http"
	"github.com/wasmjob/wasmjob/sdk/kv"
	sdknet "github.com/wasmjob/wasmjob/sdk/net"
)

// API is the server that the test grants.
const API = "https://api.example.com"

// Echo is the target that sends back what it gets.
const Echo = "echo.example.com:7"

var behaviours = map[string]func(context.Context, sdk.ShardingContext) error{
	"get": func(ctx context.Context, _ sdk.ShardingContext) error { return show(http.Get(ctx, API+"/hello?a=b")) },
	"post": func(ctx context.Context, _ sdk.ShardingContext) error {
		return show(http.Post(ctx, API+"/echo", "text/plain", strings.NewReader(strings.Repeat("0123456789", 30000))))
	},
	"head": func(ctx context.Context, _ sdk.ShardingContext) error {
		return show(http.Do(ctx, http.Request{Method: "PUT", URL: API + "/head", Header: http.Header{
			"Authorization": {"Bearer {{secret:TOKEN}}"}, "X-Two": {"1", "2"},
		}}))
	},
	"redirect": func(ctx context.Context, _ sdk.ShardingContext) error {
		for _, path := range []string{"/redirect/3", "/redirect/11", "/away"} {
			if err := show(http.Get(ctx, API+path)); err != nil {
				slog.Info("failed", "path", path, "error", err)
			}
		}
		return show(http.Do(ctx, http.Request{Method: "PUT", URL: API + "/again", Body: strings.NewReader("body"), FollowRedirects: true}))
	},
	"refused": func(ctx context.Context, _ sdk.ShardingContext) error {
		_, err := http.Get(ctx, "https://elsewhere.example.com/")
		slog.Info("refused", "denied", errors.Is(err, sdk.ErrDenied), "error", err)
		_, err = http.Get(ctx, API+"/broken")
		slog.Info("broken", "unavailable", errors.Is(err, sdk.ErrUnavailable), "error", err)
		_, err = sdknet.Dial("tcp", "elsewhere.example.com:7")
		slog.Info("refused", "denied", errors.Is(err, sdk.ErrDenied), "error", err)
		_, err = sdknet.Dial("unix", "/run/socket")
		return err
	},
	"stream":    stream,
	"fifty":     fifty,
	"timers":    timers,
	"timeout":   timeout,
	"cancelled": cancelled,
	"readers":   readers,
	"early":     early,
	"dial":      dial,
	"deadline":  deadline,
	"turns":     turns,
	"full":      full,
	"kv":        state,
	"env":       environment,
}

// Outside does what the job parameter says.
func Outside(ctx context.Context, sc sdk.ShardingContext) error {
	if do := behaviours[sc.JobParameter]; do != nil {
		return do(ctx, sc)
	}
	return fmt.Errorf("no such behaviour: %q", sc.JobParameter)
}

// show logs a response.
func show(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	slog.Info("response", "status", resp.Status, "type", resp.Header.Get("content-type"), "length", len(body), "body", string(body[:min(len(body), 200)]), "url", resp.URL)
	return nil
}

// stream has a conversation: each line of the request's body is answered before the
// next one is written.
func stream(ctx context.Context, _ sdk.ShardingContext) error {
	body, out := io.Pipe()
	defer out.Close()
	resp, err := http.Do(ctx, http.Request{Method: "POST", URL: API + "/lines", Body: body})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := make([]byte, 5)
	for n := range 3 {
		if _, err := fmt.Fprintf(out, "line%d", n); err != nil {
			return err
		}
		if _, err := io.ReadFull(resp.Body, answer); err != nil {
			return err
		}
		slog.Info("answer", "line", string(answer))
	}
	out.Close()
	rest, err := io.ReadAll(resp.Body)
	slog.Info("rest", "length", len(rest))
	return err
}

// fifty has as many requests in flight, each of which is answered after 200 ms.
func fifty(ctx context.Context, _ sdk.ShardingContext) error {
	began := time.Now()
	errs := make(chan error, 50)
	for range cap(errs) {
		go func() {
			resp, err := http.Get(ctx, API+"/slow")
			if err == nil {
				_, err = io.ReadAll(resp.Body)
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			return err
		}
	}
	return sdk.Gauge("elapsed_ms", time.Since(began).Milliseconds())
}

// timers counts what a ticker of another goroutine does while a request waits.
func timers(ctx context.Context, _ sdk.ShardingContext) error {
	done := make(chan error)
	go func() {
		_, err := http.Get(ctx, API+"/slow")
		done <- err
	}()
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for ticks := int64(0); ; ticks++ {
		select {
		case <-t.C:
		case err := <-done:
			return errors.Join(err, sdk.Gauge("ticks", ticks))
		}
	}
}

func timeout(ctx context.Context, _ sdk.ShardingContext) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	_, err := http.Get(ctx, API+"/hang")
	slog.Info("timeout", "deadline", errors.Is(err, context.DeadlineExceeded), "error", err)
	return show(http.Get(context.Background(), API+"/hello"))
}

// cancelled waits for what never comes, and for a body that never ends.
func cancelled(ctx context.Context, _ sdk.ShardingContext) error {
	resp, err := http.Get(ctx, API+"/endless")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body := make([]byte, 1)
	if _, err := io.ReadFull(resp.Body, body); err != nil {
		return err
	}
	hung := make(chan error)
	go func() {
		_, err := http.Get(ctx, API+"/hang")
		hung <- err
	}()
	_, err = resp.Body.Read(body)
	slog.Info("body", "cancelled", errors.Is(err, context.Canceled))
	return <-hung
}

// readers have the body of a request that fails, and of one that is not read.
func readers(ctx context.Context, _ sdk.ShardingContext) error {
	_, err := http.Do(ctx, http.Request{Method: "POST", URL: API + "/hang", Body: io.MultiReader(strings.NewReader("begin"), broken{})})
	slog.Info("body", "error", err)
	if _, err = http.Do(ctx, http.Request{URL: API + "/hello", Header: http.Header{"X": {"\x00"}}}); err == nil {
		return errors.New("a NUL went through")
	}
	slog.Info("header", "error", err)
	_, err = http.Do(ctx, http.Request{URL: API + "/hello", Header: http.Header{"Connection": {"close"}}})
	return err
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the disk is gone") }

// early is answered while its body is on its way.
func early(ctx context.Context, _ sdk.ShardingContext) error {
	body, out := io.Pipe()
	defer out.Close()
	go func() {
		for {
			if _, err := out.Write(make([]byte, 10000)); err != nil {
				return
			}
		}
	}()
	resp, err := http.Do(ctx, http.Request{Method: "POST", URL: API + "/hello", Body: body})
	if err != nil {
		return err
	}
	body.Close()
	return show(resp, nil)
}

// dial writes and reads at once, more than fits on the way, then closes one side.
func dial(ctx context.Context, _ sdk.ShardingContext) error {
	c, err := sdknet.DialContext(ctx, "tcp", Echo)
	if err != nil {
		return err
	}
	defer c.Close()
	slog.Info("connected", "network", c.RemoteAddr().Network(), "to", c.RemoteAddr().String())
	const size = 1 << 20
	var wg sync.WaitGroup
	var wrote error
	wg.Go(func() {
		piece := make([]byte, 100000)
		for left := size; left > 0 && wrote == nil; left -= len(piece) {
			piece = piece[:min(left, len(piece))]
			_, wrote = c.Write(piece)
		}
		wrote = errors.Join(wrote, c.(interface{ CloseWrite() error }).CloseWrite())
	})
	n, err := io.Copy(io.Discard, c)
	wg.Wait()
	slog.Info("echo", "bytes", n)
	_, late := c.Write([]byte("x"))
	slog.Info("after the end", "error", late)
	return errors.Join(err, wrote)
}

// turns has a conversation of many short turns until its time is up: waits that are short do not
// keep timers from firing, also where no other goroutine waits.
func turns(ctx context.Context, _ sdk.ShardingContext) error {
	c, err := sdknet.DialContext(ctx, "tcp", Echo)
	if err != nil {
		return err
	}
	defer c.Close()
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond) // no goroutine watches it
	defer cancel()
	b := make([]byte, 1)
	for began := time.Now(); short.Err() == nil; {
		if time.Since(began) > 10*time.Second {
			return errors.New("the time is not up after 10 s")
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return err
		}
	}
	return nil
}

// deadline sets deadlines before and while a read waits, and closes one that waits.
func deadline(ctx context.Context, _ sdk.ShardingContext) error {
	c, err := sdknet.DialTLS("tcp", Echo)
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, 5)
	say := func(what string, err error) {
		var timeout net.Error
		slog.Info(what, "timeout", errors.As(err, &timeout) && timeout.Timeout(), "deadline", errors.Is(err, os.ErrDeadlineExceeded), "closed", errors.Is(err, net.ErrClosed), "error", err)
	}
	c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	_, err = c.Read(b)
	say("passed", err)
	_, err = c.Read(b)
	say("still", err)
	c.SetDeadline(time.Time{})
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	slog.Info("read", "bytes", string(b))
	ended := make(chan error)
	go func() {
		_, err := c.Read(b)
		ended <- err
	}()
	time.Sleep(30 * time.Millisecond)
	c.SetReadDeadline(time.Unix(1, 0))
	say("while it waits", <-ended)
	c.SetDeadline(time.Time{})
	go func() {
		_, err := c.Read(b)
		ended <- err
	}()
	time.Sleep(30 * time.Millisecond)
	c.Close()
	say("closed", <-ended)
	_, err = c.Write(b)
	return err
}

// full opens more handles than there are.
func full(ctx context.Context, _ sdk.ShardingContext) error {
	for n := 0; ; n++ {
		if _, err := sdknet.Dial("tcp", Echo); err != nil {
			slog.Info("full", "connections", n, "quota", errors.Is(err, sdk.ErrQuota))
			return err
		}
	}
}

func state(context.Context, sdk.ShardingContext) error {
	_, ok, err := kv.Get("position")
	slog.Info("nothing yet", "ok", ok, "error", err)
	if err := errors.Join(kv.Set("position", []byte(strings.Repeat("p", 1000))), kv.Set("empty", nil), kv.Set("gone", []byte("x")), kv.Delete("gone"), kv.Delete("never")); err != nil {
		return err
	}
	value, ok, err := kv.Get("position")
	slog.Info("staged", "length", len(value), "ok", ok, "error", err)
	for range 3 {
		if _, err := kv.Increment("pages", 7); err != nil {
			return err
		}
	}
	pages, err := kv.Increment("pages", -1)
	slog.Info("counter", "pages", pages, "error", err)
	_, err = kv.Increment("pages", -100)
	slog.Info("below 0", "invalid", errors.Is(err, sdk.ErrInvalid), "error", err)
	keys, err := kv.List("p")
	slog.Info("keys", "keys", strings.Join(keys, " "), "error", err)
	slog.Info("limits", "key", kv.Set(strings.Repeat("k", 257), nil), "value", kv.Set("large", make([]byte, 65<<10)), "all", kv.Set("large", make([]byte, 64<<10)))
	return nil
}

func environment(_ context.Context, sc sdk.ShardingContext) error {
	region, err := env.Get("REGION")
	slog.Info("variable", "value", region, "error", err)
	_, err = env.Get("NONE")
	slog.Info("variable", "missing", errors.Is(err, sdk.ErrNotFound), "error", err)
	token, err := env.Secret("TOKEN")
	slog.Info("secret", "value", token, "error", err)
	_, err = env.Secret("OTHER")
	slog.Info("config", "same", string(env.Config()) == string(sc.PluginConfig()), "length", len(env.Config()))
	return err
}
