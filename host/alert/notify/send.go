// Package notify delivers messages: by e-mail, to chat robots, and to any URL that accepts a POST. It reads
// secrets from their files for each message, and keeps them out of errors.
package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/config/fields"
	"github.com/wasmjob/wasmjob/host/config/ownership"
	"github.com/wasmjob/wasmjob/internal/labels"
	"github.com/wasmjob/wasmjob/internal/text/words"
	"github.com/wasmjob/wasmjob/internal/tlsconfig"
)

const (
	// Timeout bounds one delivery.
	Timeout = 20 * time.Second
	// mostAnswer is how much of an answer is read, mostSecret how long a secret may be.
	mostAnswer = 64 << 10
	mostSecret = 64 << 10
)

// Sender delivers messages. It is safe for concurrent use.
type Sender struct {
	client *http.Client
	now    func() time.Time
}

// New returns a sender. Close ends its idle connections.
func New() *Sender {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: tlsconfig.New(), TLSHandshakeTimeout: Timeout, ResponseHeaderTimeout: Timeout, MaxIdleConns: 10, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}
	return &Sender{now: time.Now, client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // do not send signatures and tokens elsewhere
	}}}
}

// Close ends idle connections.
func (s *Sender) Close() { s.client.CloseIdleConnections() }

// The longest texts that receivers take, in bytes.
const (
	mostSlack    = 12_000
	mostDingTalk = 18_000
	mostWeCom    = 2_000
	mostFeishu   = 18_000
	mostTelegram = 4_000
	mostEmail    = 256 << 10
)

// Send delivers a message. Its error says what went wrong, without secrets.
func (s *Sender) Send(ctx context.Context, r alert.Receiver, m *alert.Message) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	switch r.Kind {
	case alert.Email:
		return s.mail(ctx, r, m)
	case alert.Slack:
		return s.slack(ctx, r, m)
	case alert.DingTalk:
		return s.dingTalk(ctx, r, m)
	case alert.WeCom:
		return s.weCom(ctx, r, m)
	case alert.Feishu:
		return s.feishu(ctx, r, m)
	case alert.Telegram:
		return s.telegram(ctx, r, m)
	case alert.Webhook:
		return s.webhook(ctx, r, m)
	}
	return fmt.Errorf("there is no receiver of the kind %q", r.Kind)
}

// secret reads a secret: the file without blanks around it. Of no file there is none.
func secret(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	data, info, err := fields.ReadFile(path, mostSecret)
	if err != nil {
		return "", fmt.Errorf("%s %w", path, err)
	}
	if err := ownership.Self().Check(path, info, ownership.Settings); err != nil {
		return "", err
	}
	text := strings.TrimSpace(string(data))
	if text == "" || strings.ContainsAny(text, "\r\n\x00") {
		return "", fmt.Errorf("%s: expected one line with a secret", path)
	}
	return text, nil
}

// address is where a receiver is reached, and its secret.
func address(r alert.Receiver) (*url.URL, string, error) {
	text := r.URL
	if r.URLFile != "" {
		var err error
		if text, err = secret(r.URLFile); err != nil {
			return nil, "", err
		}
		if problem := alert.CheckURL(text); problem != "" {
			return nil, "", fmt.Errorf("%s: %s", r.URLFile, problem)
		}
	}
	token, err := secret(r.SecretFile)
	if err != nil {
		return nil, "", err
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, "", errors.New("the address is no URL") // whose text may be a secret
	}
	return u, token, nil
}

func (s *Sender) slack(ctx context.Context, r alert.Receiver, m *alert.Message) error {
	u, _, err := address(r)
	if err != nil {
		return err
	}
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	_, err = s.post(ctx, u, nil, map[string]string{"text": escape.Replace(m.Text(mostSlack))})
	return err
}

func (s *Sender) dingTalk(ctx context.Context, r alert.Receiver, m *alert.Message) error {
	u, key, err := address(r)
	if err != nil {
		return err
	}
	if key != "" {
		at := strconv.FormatInt(s.now().UnixMilli(), 10)
		q := u.Query()
		q.Set("timestamp", at)
		q.Set("sign", sign(key, at+"\n"+key))
		u.RawQuery = q.Encode()
	}
	return s.robot(ctx, u, map[string]any{"msgtype": "text", "text": map[string]string{"content": m.Text(mostDingTalk)}})
}

func (s *Sender) weCom(ctx context.Context, r alert.Receiver, m *alert.Message) error {
	u, _, err := address(r)
	if err != nil {
		return err
	}
	return s.robot(ctx, u, map[string]any{"msgtype": "text", "text": map[string]string{"content": m.Text(mostWeCom)}})
}

func (s *Sender) feishu(ctx context.Context, r alert.Receiver, m *alert.Message) error {
	u, key, err := address(r)
	if err != nil {
		return err
	}
	body := map[string]any{"msg_type": "text", "content": map[string]string{"text": m.Text(mostFeishu)}}
	if key != "" {
		at := strconv.FormatInt(s.now().Unix(), 10)
		body["timestamp"], body["sign"] = at, sign(at+"\n"+key, "")
	}
	return s.robot(ctx, u, body)
}

// sign is a signature as DingTalk and Feishu have it.
func sign(key, text string) string {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// robot posts to a robot that answers with a code; 0 is success.
func (s *Sender) robot(ctx context.Context, u *url.URL, body any) error {
	answer, err := s.post(ctx, u, nil, body)
	if err != nil {
		return err
	}
	var said struct {
		ErrCode *int   `json:"errcode"`
		ErrMsg  string `json:"errmsg"`
		Code    *int   `json:"code"`
		Msg     string `json:"msg"`
		// Status is what Feishu's older robots say.
		Status *int `json:"StatusCode"`
	}
	if err := json.Unmarshal(answer, &said); err != nil {
		return fmt.Errorf("%s answered with something that is not JSON", u.Host)
	}
	for _, code := range []*int{said.ErrCode, said.Code, said.Status} {
		switch {
		case code == nil:
		case *code == 0:
			return nil
		default:
			return fmt.Errorf("%s refused the message: code %d, %s", u.Host, *code, words.Clip(said.ErrMsg+said.Msg))
		}
	}
	return fmt.Errorf("%s did not say that it has taken the message", u.Host)
}

// telegramAPI is where Telegram's robots are reached, unless the receiver says otherwise.
const telegramAPI = "https://api.telegram.org"

func (s *Sender) telegram(ctx context.Context, r alert.Receiver, m *alert.Message) error {
	if r.URL == "" {
		r.URL = telegramAPI
	}
	u, token, err := address(r)
	if err != nil {
		return err
	}
	u = u.JoinPath("bot"+token, "sendMessage")
	answer, err := s.post(ctx, u, nil, map[string]string{"chat_id": r.Chat, "text": m.Text(mostTelegram)})
	if err != nil {
		return err
	}
	var said struct {
		OK          bool   `json:"ok"`
		Description string `json:"description"`
	}
	if err := json.Unmarshal(answer, &said); err != nil || !said.OK {
		return fmt.Errorf("%s did not take the message: %s", u.Host, words.Clip(said.Description))
	}
	return nil
}

// Payload is what a webhook gets.
type Payload struct {
	Version int    `json:"version"`
	Route   string `json:"route"`
	// Status is firing if an alert of the message is, else resolved.
	Status string  `json:"status"`
	Group  string  `json:"group"`
	Title  string  `json:"title"`
	Alerts []Entry `json:"alerts"`
}

// Entry is one alert of a Payload.
type Entry struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	// New: it was not sent before.
	New      bool       `json:"new,omitempty"`
	Rule     alert.Rule `json:"rule"`
	Job      string     `json:"job,omitempty"`
	Labels   labels.Set `json:"labels,omitempty"`
	Item     *int       `json:"item,omitempty"`
	Subject  string     `json:"subject,omitempty"`
	Host     string     `json:"host,omitempty"`
	Text     string     `json:"text"`
	Since    time.Time  `json:"since"`
	Resolved time.Time  `json:"resolved,omitzero"`
	Why      string     `json:"why,omitempty"`
}

const (
	firing   = "firing"
	resolved = "resolved"
)

// PayloadOf is what a webhook gets of a message.
func PayloadOf(m *alert.Message) Payload {
	p := Payload{Version: 1, Route: m.Route, Status: resolved, Group: m.Group, Title: m.Title(), Alerts: []Entry{}}
	add := func(a *alert.Alert, status string, fresh bool) {
		p.Alerts = append(p.Alerts, Entry{a.ID, status, fresh, a.Rule, a.Job, a.Labels, a.Item, a.Subject, a.Host, a.Text, a.Since, a.Resolved, a.Why})
	}
	for i := range m.Firing {
		p.Status = firing
		add(&m.Firing[i], firing, i < m.New)
	}
	for i := range m.Over {
		add(&m.Over[i], resolved, true)
	}
	return p
}

func (s *Sender) webhook(ctx context.Context, r alert.Receiver, m *alert.Message) error {
	u, token, err := address(r)
	if err != nil {
		return err
	}
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	_, err = s.post(ctx, u, header, PayloadOf(m))
	return err
}

// post sends JSON, and returns the answer to it.
func (s *Sender) post(ctx context.Context, u *url.URL, header http.Header, body any) ([]byte, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(data))
	if err != nil {
		return nil, errors.New("the address is no URL")
	}
	for key, values := range header {
		req.Header[key] = values
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("User-Agent", "wasmjob")
	answer, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.Host, hidden(err))
	}
	defer answer.Body.Close() // read as far as it matters
	said, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswer))
	switch {
	case answer.StatusCode < 200 || answer.StatusCode > 299:
		return nil, fmt.Errorf("%s answered %s: %s", u.Host, answer.Status, words.Clip(words.FirstLine(string(said))))
	case err != nil:
		return nil, fmt.Errorf("%s: reading its answer: %w", u.Host, hidden(err))
	}
	return said, nil
}

// hidden leaves the address, which may be a secret, out of an error.
func hidden(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
