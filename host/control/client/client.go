package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/control/server"
)

// ErrNoHost says that no host was found, or that it does not answer.
var ErrNoHost = errors.New("no host is running here")

// answerTimeout is how long a host may take to begin an answer: the 15 s of an operation, and a reserve.
const answerTimeout = 25 * time.Second

// Client asks one host. It is safe for concurrent use.
type Client struct {
	address server.Address
	token   string
	// user and reason are given with each change; ifMatch is the version that an edit is made from.
	user, reason, ifMatch string
	key                   string    // names a request that is sent again if its answer is lost; empty: it has no name
	until                 time.Time // when what is disabled ends by itself; zero: never
	scheme                string
	http                  *http.Client
}

// NewClient returns a client for a host's address. It does not connect yet.
func NewClient(a server.Address, token string) *Client { return newClient(a, token, nil) }

// newClient is one that speaks TLS, unless config is nil.
func newClient(a server.Address, token string, config *tls.Config) *Client {
	a = a.Reachable()
	var d net.Dialer
	scheme := "http"
	if config != nil {
		scheme = "https"
	}
	return &Client{
		address: a,
		token:   token,
		scheme:  scheme,
		http: &http.Client{
			// A transport of its own: no proxy, and the socket if it is one.
			Transport: &http.Transport{
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return d.DialContext(ctx, a.Network, a.Name)
				},
				TLSClientConfig:       config,
				DisableKeepAlives:     true, // a question now and then
				ResponseHeaderTimeout: answerTimeout,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Where says which host a client wants. The zero value is "the one that runs
// here".
type Where struct {
	// Address is empty, or as server.ParseAddress reads it.
	Address string
	// TokenFile is empty, or a file with the token.
	TokenFile string
	// CA is a file with the authorities of the host's certificate, or SystemCA. Empty: there
	// is no TLS, unless the host's note says so.
	CA string
	// Dirs are where hosts leave notes; see NoteDirs.
	Dirs []string
	// One: the request concerns that host only, so that no other host of its cluster will do.
	One bool
}

// Find returns a client for the host. Without an address it is this user's host on this machine, or one of
// several of one cluster; if there are none, or hosts of several clusters, the error says so. It skips hosts
// that do not answer within two seconds, and removes notes of hosts that are gone.
func Find(ctx context.Context, w Where) (*Client, error) {
	token := ""
	if w.TokenFile != "" {
		var err error
		if token, err = server.ReadTokenFile(w.TokenFile); err != nil {
			return nil, err
		}
	}
	all := notes(w.Dirs)
	if w.Address != "" {
		return at(ctx, w, token, all)
	}
	alive := running(ctx, all)
	if len(alive) == 0 {
		return nil, fmt.Errorf("%w: nothing is noted in %s", ErrNoHost, strings.Join(w.Dirs, ", "))
	}
	first := alive[0]
	if slices.ContainsFunc(alive[1:], func(n found) bool { return w.One || n.Cluster == "" || n.Cluster != first.Cluster }) {
		names := make([]string, len(alive))
		for i, n := range alive {
			names[i] = n.Address + " (" + cmp.Or(n.Cluster, "alone, jobs of "+n.Plugins) + ")"
		}
		return nil, fmt.Errorf("several hosts are running here, say which one with --admin ADDRESS: %s", strings.Join(names, ", "))
	}
	c, err := first.client()
	if err == nil && token != "" {
		c.token = token
	}
	return c, err
}

// at is a client for an address; without a token it takes the one that was noted.
func at(ctx context.Context, w Where, token string, all []found) (*Client, error) {
	a, err := server.ParseAddress(w.Address)
	if err != nil {
		return nil, err
	}
	var config *tls.Config
	for _, n := range all {
		if noted, err := server.ParseAddress(n.Address); err == nil && noted.Reachable() == a.Reachable() {
			token, config = cmp.Or(token, n.Token), n.config()
		}
	}
	if w.CA != "" {
		if config, err = trusting(w.CA); err != nil {
			return nil, fmt.Errorf("authorities of the host's certificate: %w", err)
		}
	}
	c := newClient(a, token, config)
	if token != "" {
		return c, nil
	}
	if err := c.Ping(ctx); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("a host answers at %s, but its token is not known here: it is another user's or another machine's; name a file with its token", a)
}

// running are the hosts that answer of those that are noted, in the order of the notes. Notes of
// hosts that are gone are removed.
func running(ctx context.Context, all []found) []found {
	answered := make([]bool, len(all))
	var asked sync.WaitGroup
	for i, n := range all {
		asked.Go(func() { answered[i] = n.answers(ctx) })
	}
	asked.Wait()
	var alive []found
	for i, n := range all {
		if answered[i] {
			alive = append(alive, n)
		}
	}
	return alive
}

// client is one for the noted host.
func (n found) client() (*Client, error) {
	a, err := server.ParseAddress(n.Address)
	if err != nil {
		return nil, err
	}
	return newClient(a, n.Token, n.config()), nil
}

// answers reports whether the noted host does. If it is gone the note is removed.
func (n found) answers(ctx context.Context) bool {
	c, err := n.client()
	if err != nil {
		return false
	}
	err = c.Ping(ctx)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
		_ = os.Remove(n.file) // if it stays, we only ask in vain again
	}
	return err == nil
}

// ByUser returns a client that names its user with each change. A host accepts that only with its own token.
func (c *Client) ByUser(who string) *Client {
	with := *c
	with.user = who
	return &with
}

// WithReason is the client that gives a reason with each change, for the audit.
func (c *Client) WithReason(reason string) *Client {
	with := *c
	with.reason = reason
	return &with
}

// Once returns a client whose trigger has a key: a host that gets it again with the same key does not trigger
// again.
func (c *Client) Once(key string) *Client {
	with := *c
	with.key = key
	return &with
}

// Until returns a client with an end: what it disables is enabled at that time. Zero is never.
func (c *Client) Until(at time.Time) *Client {
	with := *c
	with.until = at
	return &with
}

// disable sends what disables something.
func (c *Client) disable(ctx context.Context, path string) error {
	if !c.until.IsZero() {
		path += "?" + url.Values{"until": {c.until.UTC().Format(time.RFC3339Nano)}}.Encode()
	}
	return c.do(ctx, http.MethodPost, path, nil)
}

// Ping reports whether a host answers, within two seconds.
func (c *Client) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return c.do(ctx, http.MethodGet, "/healthz", nil)
}

// Status returns what the host is doing.
func (c *Client) Status(ctx context.Context) (*report.Report, error) {
	var r report.Report
	if err := c.do(ctx, http.MethodGet, "/v1/status?full=true", &r); err != nil {
		return nil, err
	}
	return &r, nil
}

// LoginLink asks the host for the address of a login link.
func (c *Client) LoginLink(ctx context.Context) (string, error) {
	var l server.LoginLink
	err := c.do(ctx, http.MethodPost, server.LinkPath, &l)
	return l.Link, err
}

// Trigger asks for a fire of the job now.
func (c *Client) Trigger(ctx context.Context, job string) error {
	_, err := c.TriggerWith(ctx, job, tree.TriggerArgs{})
	return err
}

// TriggerWith asks for a fire of some of the items, or with another parameter. It returns the number of the
// trigger round; 0 if the host is of an earlier version, which does not say it.
func (c *Client) TriggerWith(ctx context.Context, job string, args tree.TriggerArgs) (admin.Triggered, error) {
	var done admin.Triggered
	body := triggerBody{Items: args.Items, Param: args.Param}
	if args.Named {
		body.Param, body.Arguments = nil, json.RawMessage(*args.Param)
	}
	if args.At != 0 {
		body.At = time.UnixMilli(args.At).UTC()
	}
	err := c.Send(ctx, http.MethodPost, jobPath(job, "trigger"), body, &done)
	return done, err
}

// triggerBody is the body of a trigger.
type triggerBody struct {
	Items     tree.Ranges     `json:"items,omitempty"`
	Param     *string         `json:"param,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	At        time.Time       `json:"at,omitzero"`
}

// Start makes the host join the job again that was shut down or removed.
func (c *Client) Start(ctx context.Context, job string) error {
	return c.do(ctx, http.MethodPost, jobPath(job, "start"), nil)
}

// Enable lets all servers run the job again; job "" is all jobs of the host.
func (c *Client) Enable(ctx context.Context, job string) error {
	return c.do(ctx, http.MethodPost, jobPath(job, "enable"), nil)
}

// Disable keeps all servers from running the job; job "" is all jobs of the
// host.
func (c *Client) Disable(ctx context.Context, job string) error {
	return c.disable(ctx, jobPath(job, "disable"))
}

// EnableItem lets the item run again, wherever it lives.
func (c *Client) EnableItem(ctx context.Context, job string, item int) error {
	return c.do(ctx, http.MethodPost, jobPath(job, "items/"+strconv.Itoa(item)+"/enable"), nil)
}

// DisableItem keeps the item from running, wherever it lives.
func (c *Client) DisableItem(ctx context.Context, job string, item int) error {
	return c.disable(ctx, jobPath(job, "items/"+strconv.Itoa(item)+"/disable"))
}

// Kill asks the hosts of a job to end what they run, and waits for it; see
// [admin.Registry.Kill].
func (c *Client) Kill(ctx context.Context, job string, o admin.KillOptions, progress func(*admin.Kills)) (*admin.Kills, error) {
	query := url.Values{"grace": {o.Grace.String()}, "wait": {o.Wait.String()}}
	if o.Item >= 0 {
		query.Set("item", strconv.Itoa(o.Item))
	}
	for name, value := range map[string]string{"run": o.Run, "server": o.Server} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var last *admin.Kills
	err := c.ask(ctx, http.MethodPost, jobPath(job, "kill")+"?"+query.Encode(), nil, func(body io.Reader) error {
		for d := json.NewDecoder(body); ; {
			var state struct {
				*admin.Kills
				Error string `json:"error"`
			}
			switch err := d.Decode(&state); {
			case errors.Is(err, io.EOF) && last == nil:
				return fmt.Errorf("the host at %s has broken off", c.address)
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return fmt.Errorf("the answer of %s is not a host's: %w", c.address, err)
			case state.Error != "":
				return &ServerError{Address: c.address, Code: http.StatusInternalServerError, Message: state.Error}
			}
			if last = state.Kills; progress != nil && last != nil {
				progress(last)
			}
		}
	})
	return last, err
}

// Release lets items run again that were held back: one, or with -1 all. It
// returns those that were.
func (c *Client) Release(ctx context.Context, job string, item int) (tree.Items, error) {
	path := jobPath(job, "release")
	if item >= 0 {
		path += "?item=" + strconv.Itoa(item)
	}
	var out struct {
		Items tree.Items `json:"items"`
	}
	err := c.do(ctx, http.MethodPost, path, &out)
	return out.Items, err
}

// Kept is what the items of a job keep: one, or with -1 all.
func (c *Client) Kept(ctx context.Context, job string, item int) ([]admin.Kept, error) {
	var all []admin.Kept
	err := c.do(ctx, http.MethodGet, keptPath(job, item), &all)
	return all, err
}

// ChangeKept changes what an item keeps; item -1 is the only one of its job. See
// [admin.Registry.ChangeKept].
func (c *Client) ChangeKept(ctx context.Context, job string, item int, change admin.KeptChange) (*admin.Kept, error) {
	body, err := json.Marshal(change)
	if err != nil {
		return nil, fmt.Errorf("change %s: %w", job, err)
	}
	var k admin.Kept
	if err := c.ask(ctx, http.MethodPost, keptPath(job, item), body, c.into(&k)); err != nil {
		return nil, err
	}
	return &k, nil
}

func keptPath(job string, item int) string {
	if item < 0 {
		return jobPath(job, "kept")
	}
	return jobPath(job, "kept") + "?item=" + strconv.Itoa(item)
}

// Remove takes the job out of the registry; purge forgets its offsets and
// records too.
func (c *Client) Remove(ctx context.Context, job string, purge bool) error {
	return c.do(ctx, http.MethodDelete, jobPath(job, "")+"?purge="+strconv.FormatBool(purge), nil)
}

// Jobs lists the jobs of the host's namespace, as the registry has them.
func (c *Client) Jobs(ctx context.Context) ([]admin.Brief, error) {
	var list []admin.Brief
	err := c.do(ctx, http.MethodGet, "/v1/registry/jobs", &list)
	return list, err
}

// Config is the configuration of a job in the registry.
func (c *Client) Config(ctx context.Context, job string) (*admin.JobConfig, error) {
	var config admin.JobConfig
	if err := c.do(ctx, http.MethodGet, jobPath(job, "config"), &config); err != nil {
		return nil, err
	}
	return &config, nil
}

// EditConfig edits it; see [admin.Registry.EditConfig].
func (c *Client) EditConfig(ctx context.Context, job string, e admin.Edit) (*admin.Edited, error) {
	match := "*"
	if e.Version >= 0 {
		match = strconv.Quote(strconv.FormatInt(e.Version, 10))
	}
	query := url.Values{"preview": {strconv.FormatBool(e.Preview)}}
	var edited admin.Edited
	from := *c
	from.ifMatch = match
	if err := from.Send(ctx, http.MethodPatch, jobPath(job, "config")+"?"+query.Encode(), map[string]any{"settings": e.Settings}, &edited); err != nil {
		return nil, err
	}
	return &edited, nil
}

// Shards returns a job, item by item and instance by instance, over all hosts.
func (c *Client) Shards(ctx context.Context, job string) (*admin.Shards, error) {
	var s admin.Shards
	if err := c.do(ctx, http.MethodGet, jobPath(job, "shards"), &s); err != nil {
		return nil, err
	}
	return &s, nil
}

// EnableServer lets one server run the job again; job "" is all jobs.
func (c *Client) EnableServer(ctx context.Context, job, server string) error {
	return c.do(ctx, http.MethodPost, jobPath(job, "servers/"+url.PathEscape(server)+"/enable"), nil)
}

// DisableServer keeps one server from running the job; job "" is all jobs.
func (c *Client) DisableServer(ctx context.Context, job, server string) error {
	return c.disable(ctx, jobPath(job, "servers/"+url.PathEscape(server)+"/disable"))
}

// Shutdown stops instances of a job: the one that is named, those of a server,
// or all. job "" is all jobs.
func (c *Client) Shutdown(ctx context.Context, job, server, instance string) error {
	query := url.Values{}
	if server != "" {
		query.Set("server", server)
	}
	if instance != "" {
		query.Set("instance", instance)
	}
	return c.do(ctx, http.MethodPost, jobPath(job, "shutdown")+"?"+query.Encode(), nil)
}

func jobPath(job, what string) string {
	if job == "" {
		return "/v1/" + what
	}
	return strings.TrimSuffix("/v1/jobs/"+url.PathEscape(job)+"/"+what, "/")
}

// Get asks for a path of the API, such as /v1/runs?job=x, and reads the JSON of the answer.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	return c.do(ctx, http.MethodGet, path, into)
}

// Send sends a value as JSON, and reads that of the answer.
func (c *Client) Send(ctx context.Context, method, path string, value, into any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("ask the host at %s: %w", c.address, err)
	}
	return c.ask(ctx, method, path, body, c.into(into))
}

// Download asks for a path of the API, and writes the answer as it is.
func (c *Client) Download(ctx context.Context, path string, w io.Writer) error {
	return c.ask(ctx, http.MethodGet, path, nil, func(body io.Reader) error {
		if _, err := io.Copy(w, body); err != nil {
			return fmt.Errorf("read the answer of %s: %w", c.address, err)
		}
		return nil
	})
}

// Stream reads the events of a path, as server-sent events, until ctx is done, the host
// ends or take returns an error.
func (c *Client) Stream(ctx context.Context, path string, take func(name string, data []byte) error) error {
	return c.ask(ctx, http.MethodGet, path, nil, func(body io.Reader) error {
		name := ""
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, mostAnswer)
		for lines.Scan() {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch field {
			case "event":
				name = value
			case "data":
				if err := take(name, []byte(value)); err != nil {
					return err
				}
			}
		}
		if err := lines.Err(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("the stream of the host at %s has ended: %w", c.address, err)
		}
		return nil
	})
}

func (c *Client) do(ctx context.Context, method, path string, into any) error {
	return c.ask(ctx, method, path, nil, c.into(into))
}

// into reads an answer; nil skips it.
func (c *Client) into(into any) func(io.Reader) error {
	return func(r io.Reader) error {
		body, err := io.ReadAll(io.LimitReader(r, mostAnswer))
		if err != nil {
			return fmt.Errorf("ask the host at %s: %w", c.address, err)
		}
		if into == nil || len(body) == 0 {
			return nil
		}
		if err := json.Unmarshal(body, into); err != nil {
			return fmt.Errorf("the answer of %s is not a host's: %w", c.address, err)
		}
		return nil
	}
}

// mostAnswer bounds what is read of an answer, in bytes.
const mostAnswer = 64 << 20

// ask sends a request and has the body of a good answer read.
func (c *Client) ask(ctx context.Context, method, path string, body []byte, read func(io.Reader) error) error {
	name := "localhost"
	if c.address.Network == "tcp" {
		name = c.address.Name
	}
	req, err := http.NewRequestWithContext(ctx, method, c.scheme+"://"+name+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask the host at %s: %w", c.address, err)
	}
	if c.ifMatch != "" {
		req.Header.Set("If-Match", c.ifMatch)
	}
	if method != http.MethodGet && c.key != "" {
		req.Header.Set("Idempotency-Key", c.key)
	}
	if method != http.MethodGet && c.user != "" {
		req.Header.Set(auth.UserHeader, c.user)
	}
	if method != http.MethodGet && c.reason != "" {
		q := req.URL.Query()
		q.Set("reason", c.reason)
		req.URL.RawQuery = q.Encode()
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var inner *url.Error // it repeats the address
		if errors.As(err, &inner) {
			err = inner.Err
		}
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: nothing answers at %s: %w", ErrNoHost, c.address, err)
		}
		return fmt.Errorf("ask the host at %s: %w", c.address, err)
	}
	defer func() { _ = resp.Body.Close() }() // it has been read
	if resp.StatusCode/100 != 2 {
		body, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
		if err != nil {
			return fmt.Errorf("ask the host at %s: %w", c.address, err)
		}
		message, query := refusal(body, resp.Status)
		if c.scheme == "http" && bytes.Contains(body, []byte("HTTPS server")) { // as net/http answers
			message = "this address has TLS; say whose certificates to trust: --ca FILE, or --ca system"
		}
		return &ServerError{Address: c.address, Code: resp.StatusCode, Message: message, Query: query}
	}
	return read(resp.Body)
}

// ServerError is an answer that says no.
type ServerError struct {
	Address server.Address
	// Code is the HTTP status.
	Code    int
	Message string
	// Query says that all mistakes are in the query, which comes from flags.
	Query bool
}

func (e *ServerError) Error() string {
	return fmt.Sprintf("the host at %s says: %s", e.Address, e.Message)
}

// refusal is what a problem says: of each part of the request that is wrong, or of the whole. query: all
// of these are in the query.
func refusal(body []byte, status string) (message string, query bool) {
	var p server.Problem
	if json.Unmarshal(body, &p) != nil || p.Detail == "" {
		return "it is not a host, or a proxy is before it: " + status, false
	}
	if len(p.Errors) == 0 {
		return p.Detail, false
	}
	query = true
	var parts []string
	for _, e := range p.Errors {
		in, name, within := strings.Cut(e.Location, ".") // query.limit
		if !within {
			name = e.Location
		}
		query = query && in == "query"
		parts = append(parts, strings.TrimPrefix(name+": "+e.Message, ": "))
	}
	return strings.Join(parts, "; "), query
}
