// Package handler is the handler of the guest web: ordinary code with net/http.
package handler

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/sdk"
	_ "github.com/wasmjob/wasmjob/sdk/nethttp/clones"
)

const api = "https://api.example.com"

// Web sends requests in all the ways that programs do.
func Web(ctx context.Context, _ sdk.ShardingContext) error {
	show("get")(http.Get(api + "/hello"))
	show("redirect")(http.Get(api + "/redirect/3"))
	show("too many")(http.Get(api + "/redirect/11"))
	show("post")(http.Post(api+"/echo", "text/plain", strings.NewReader(strings.Repeat("0123456789", 30000))))
	show("again")(http.Post(api+"/again", "text/plain", strings.NewReader("body")))
	show("refused")(http.Get("https://elsewhere.example.com/"))

	req, err := http.NewRequestWithContext(ctx, "PUT", "https://user:password@api.example.com/head", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Connection", "close")
	show("head")(http.DefaultClient.Do(req))

	hasty := http.Client{Timeout: 50 * time.Millisecond}
	_, err = hasty.Get(api + "/hang")
	slog.Info("timeout", "deadline", errors.Is(err, context.DeadlineExceeded))
	if err := endless(ctx); err != nil {
		return err
	}

	cloned := http.DefaultTransport.(*http.Transport).Clone()
	client := http.Client{Transport: cloned}
	show("cloned")(client.Get("http://plain.example.com:8080/hello"))
	show("cloned, kept alive")(client.Get("http://plain.example.com:8080/hello"))
	show("cloned, TLS by the host")(client.Get(api + "/hello"))
	show("cloned, refused")(client.Get("https://elsewhere.example.com/"))
	cloned.CloseIdleConnections()
	return stream(ctx)
}

// endless is cancelled while it reads a body.
func endless(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api+"/endless", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	time.AfterFunc(20*time.Millisecond, cancel)
	body, err := io.ReadAll(resp.Body)
	slog.Info("body", "begin", string(body), "cancelled", errors.Is(err, context.Canceled))
	return nil
}

func show(what string) func(*http.Response, error) {
	return func(resp *http.Response, err error) {
		if err != nil {
			slog.Info(what, "denied", errors.Is(err, sdk.ErrDenied), "error", err)
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		slog.Info(what, "status", resp.Status, "length", resp.ContentLength, "type", resp.Header.Get("Content-Type"), "body", string(body[:min(len(body), 100)]), "error", err)
	}
}

// stream has a conversation over one request.
func stream(ctx context.Context) error {
	body, out := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, "POST", api+"/lines", body)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for _, line := range []string{"first", "third"} {
		if _, err := io.WriteString(out, line); err != nil {
			return err
		}
		answer := make([]byte, len(line))
		if _, err := io.ReadFull(resp.Body, answer); err != nil {
			return err
		}
		slog.Info("stream", "answer", string(answer))
	}
	return out.Close()
}
