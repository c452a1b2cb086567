package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// shots is where screenshots go; docs/pictures are some of them.
var shots = flag.String("shots", "", "directory for screenshots")

// axe is what looks for what keeps people from using a page.
//
//go:embed testdata/axe.min.js
var axe string

// browsing is the context of the browser; nil: none is installed.
var browsing context.Context

// startBrowser starts the browser that all tests share.
func startBrowser() (end func(), err error) {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if err != nil {
		return func() {}, errors.New("no browser is installed")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.Flag("hide-scrollbars", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // which root cannot have
	}
	ctx, cancelAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(ctx)
	end = func() { cancel(); cancelAllocator() }
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		end()
		return func() {}, fmt.Errorf("the browser does not start: %w", err)
	}
	browsing = ctx
	return end, nil
}

// look is how a tab looks at pages.
type look struct {
	dark   bool
	phone  bool
	lang   string
	script bool // scripts run
	// stranger: nobody has signed in yet.
	stranger bool
}

// plain is a reader of English on a desk, in the light.
var plain = look{lang: "en", script: true}

// tab is a tab of the browser with cookies of its own. What pages complain of fails the test.
type tab struct {
	t    *testing.T
	ctx  context.Context
	host *host
	look look

	// also are addresses besides the host's to which requests may go.
	also []string

	mu       sync.Mutex
	errors   []string
	requests []string
	dialogs  int
	loaded   float64 // bytes on the wire
}

// tab opens a tab for a host's console.
func (h *host) tab(t *testing.T, l look) *tab {
	t.Helper()
	if browsing == nil {
		t.Skip("no browser is installed")
	}
	ctx, cancel := chromedp.NewContext(browsing, chromedp.WithNewBrowserContext())
	b := &tab{t: t, ctx: ctx, host: h, look: l}
	t.Cleanup(func() {
		if t.Failed() {
			b.shot("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
		}
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, e := range b.errors {
			t.Errorf("the browser says: %s", e)
		}
		for _, r := range b.requests {
			u, err := url.Parse(r)
			if err != nil || u.Scheme == "data" || u.Scheme == "about" {
				continue
			}
			if !slices.ContainsFunc(append(b.also, h.url), func(site string) bool { return strings.HasPrefix(r, site+"/") }) {
				t.Errorf("a request went elsewhere: %s", r)
			}
		}
		if b.dialogs > 0 {
			t.Errorf("%d dialogs were opened: a script ran that is somebody's text", b.dialogs)
		}
	})
	b.ok(chromedp.Listen(ctx, b.hear))
	width, height := int64(1280), int64(860)
	options := []chromedp.EmulateViewportOption{}
	if l.phone {
		width, height = 390, 800
		options = append(options, chromedp.EmulateMobile)
	}
	b.ok(chromedp.Do(ctx, chromedp.EmulateViewport(width, height, options...)))
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	b.ok(err)
	_, err = chromedp.Call(ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Berlin"})
	b.ok(err)
	_, err = chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !l.script})
	b.ok(err)
	_, err = chromedp.Call(ctx, network.Enable, network.EnableParams{})
	b.ok(err)
	_, err = chromedp.Call(ctx, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: network.Headers{"Accept-Language": l.lang}})
	b.ok(err)
	messages := chromedp.Console(ctx)
	go func() { // ends with ctx
		for m, err := range messages {
			if err != nil {
				return
			}
			b.complain(m)
		}
	}()
	if !l.stranger {
		b.ok(b.do(chromedp.Navigate(h.link())))
	}
	return b
}

// hear takes an event of the browser.
func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *network.EventLoadingFinished:
		b.loaded += e.EncodedDataLength
	case *page.EventJavascriptDialogOpening:
		b.dialogs++
	}
}

// complain takes what a page says on the console. That a page, or a host, is not there is
// what some tests are about.
func (b *tab) complain(m chromedp.ConsoleMessage) {
	text := m.String()
	if strings.Contains(text, "Failed to load resource") {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errors = append(b.errors, text+" "+m.URL)
}

func (b *tab) ok(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// open goes to a page.
func (b *tab) open(path string) {
	b.t.Helper()
	err := b.do(chromedp.Navigate(b.host.url + path))
	for range 5 {
		if err == nil || !strings.Contains(err.Error(), "ERR_ABORTED") {
			break
		}
		// The answer to a form that was sent before has come in between.
		err = b.do(chromedp.Navigate(b.host.url + path))
	}
	b.ok(err)
}

// words are what an element shows, also where scripts do not run. A page that comes while it
// is looked for takes the element away: then it is looked for again.
func (b *tab) words(selector string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for {
		text, err := chromedp.Run(ctx, chromedp.Text(chromedp.CSS(selector)))
		if err != nil && ctx.Err() == nil && strings.Contains(err.Error(), "No node with given id") {
			continue
		}
		b.ok(err)
		return text
	}
}

// do runs actions, at most for patience.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return chromedp.Do(ctx, actions...)
}

// click clicks what a selector finds, as a mouse does.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.clickOn(fmt.Sprintf("document.querySelector(%s)", quote(selector)))
}

// press clicks a button or a link by its words, in what a selector finds.
func (b *tab) press(within, words string) {
	b.t.Helper()
	b.clickOn(fmt.Sprintf("[...document.querySelectorAll(%s)].find((e) => e.textContent.trim() === %s && e.getClientRects().length > 0)",
		quote(within+" button, "+within+" a, "+within+" summary"), quote(words)))
}

// clickOn clicks the middle of the element that an expression finds, when that is there,
// nothing lies over it, and it stands still: what a page shows later moves the rest.
func (b *tab) clickOn(element string) {
	b.t.Helper()
	at := fmt.Sprintf(`(() => { const e = %s; e.scrollIntoView({ block: 'center' }); const r = e.getClientRects()[0];
		const x = r.left + r.width / 2, y = r.top + r.height / 2, over = document.elementFromPoint(x, y);
		return e === over || e.contains(over) || over?.contains(e) ? [x, y] : null; })()`, element)
	for late := time.Now().Add(patience); ; {
		b.until(at)
		if time.Now().After(late) {
			b.t.Fatalf("%s does not stand still, or is covered", element)
		}
		xy := eval[[]float64](b, at)
		pause(b.ctx)
		later := eval[[]float64](b, at)
		if len(xy) == 2 && slices.Equal(xy, later) {
			b.ok(b.do(chromedp.MouseClickXY(xy[0], xy[1])))
			return
		}
	}
}

// fill types into what a selector finds, instead of what is there.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.click(selector)
	eval[bool](b, fmt.Sprintf("document.querySelector(%s).select(); true", quote(selector)))
	b.key(text)
}

// key presses keys, one after the other: the text of each goes with it, as from a keyboard.
func (b *tab) key(keys string) {
	b.t.Helper()
	for _, r := range keys {
		down := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: string(r), Text: string(r)}
		if r == '\r' {
			down.Key, down.Code, down.WindowsVirtualKeyCode = "Enter", "Enter", 13
		}
		up := down
		up.Type, up.Text = input.DispatchKeyEventTypeKeyUp, ""
		for _, p := range []input.DispatchKeyEventParams{down, up} {
			_, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, p)
			b.ok(err)
		}
	}
}

// eval is the value of an expression.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

func quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // a text always marshals
	}
	return string(b)
}

// until waits until an expression is true of the page, or of the one after it.
func (b *tab) until(expression string) {
	b.t.Helper()
	const watch = `new Promise((done) => {
		const is = () => { try { return (%s); } catch { return false; } };
		if (is()) { done(true); return; }
		const o = new MutationObserver(() => { if (is()) { o.disconnect(); done(true); } });
		o.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
	})`
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for {
		done, err := chromedp.Run(ctx, chromedp.Evaluate[bool](fmt.Sprintf(watch, expression), chromedp.EvalAwaitPromise))
		if done {
			return
		}
		if ctx.Err() != nil {
			b.t.Fatalf("%s is not so:\n%s", expression, b.text())
		}
		_ = err // the page was left: the next one is asked
		pause(ctx)
	}
}

// pause lies between two questions.
func pause(ctx context.Context) {
	timer := time.NewTimer(20 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// shows waits until the page has a text.
func (b *tab) shows(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("document.body.innerText.replace(/\\s+/g, ' ').includes(%s)", quote(text)))
}

// text is what the page says.
func (b *tab) text() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

// shot takes a picture of the page.
func (b *tab) shot(name string) {
	b.t.Helper()
	if *shots == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = errors.Join(os.MkdirAll(*shots, 0o755), os.WriteFile(filepath.Join(*shots, name+".png"), picture, 0o644))
	}
	if err != nil {
		b.t.Error(err)
	}
}

// finding is something that axe has found.
type finding struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML string }
}

// widest names what reaches beyond the window.
const widest = `[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth && !e.closest('.scroll *, nav *'))
	.map((e) => e.tagName + '.' + e.getAttribute('class') + ' ' + e.getBoundingClientRect().right).slice(0, 5).join(', ')`

// unreadable finds what a program has written that nobody can read: addresses in memory,
// and values that are missing.
const unreadable = `[...document.querySelector('main').textContent.matchAll(/0x[0-9a-f]{6,}|%![a-z]?\(|<nil>|\bNaN\b|\bundefined\b/g)].map((m) => m[0])`

// menuEntry is where the menu's entry of this page begins and ends, and how wide the window is;
// empty if there is none.
const menuEntry = `[...document.querySelectorAll('header nav [aria-current]')].flatMap((a) => { const r = a.getBoundingClientRect(); return [r.left, r.right, innerWidth]; })`

// accessible fails the test for what axe finds serious or critical, and for a page that is
// wider than the window.
func (b *tab) accessible(where string) {
	b.t.Helper()
	if wide := eval[int](b, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
		b.t.Errorf("%s: the page is %d pixels wider than the window: %s", where, wide, eval[string](b, widest))
	}
	b.inMenu(where)
	if raw := eval[[]string](b, unreadable); len(raw) > 0 {
		b.t.Errorf("%s: the page has what is not for people: %q", where, raw)
	}
	eval[bool](b, axe+"; true")
	found := eval[[]finding](b, `axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations.map((v) => ({ id: v.id, impact: v.impact, help: v.help, nodes: v.nodes.slice(0, 3).map((n) => ({ html: n.html.slice(0, 200) + ' ' + n.any.map((a) => a.message).join(' ').slice(0, 200) })) })))`)
	for _, f := range found {
		if f.Impact == "serious" || f.Impact == "critical" {
			b.t.Errorf("%s: %s: %s: %s %v", where, f.Impact, f.ID, f.Help, f.Nodes)
		}
	}
}

// inMenu: the menu's entry of the page is in the window.
func (b *tab) inMenu(where string) {
	b.t.Helper()
	if at := eval[[]float64](b, menuEntry); len(at) > 0 && (at[0] < 0 || at[1] > at[2]) {
		b.t.Errorf("%s: the menu's entry of this page is out of sight: from %g to %g of %g pixels", where, at[0], at[1], at[2])
	}
}

// weight is what the tab has loaded so far, in bytes on the wire.
func (b *tab) weight() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int(b.loaded)
}
