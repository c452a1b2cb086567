package pipe

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
)

// guest waits for notify.
type guest struct{ notified chan struct{} }

func newGuest() guest { return guest{make(chan struct{}, 1)} }

func (g guest) notify() {
	select {
	case g.notified <- struct{}{}:
	default:
	}
}

func isAgain(err error) bool {
	var f *capability.Failure
	return errors.As(err, &f) && f.Code == abi.ErrAgain
}

// random are bytes of which each is known by its place.
func random(n int) []byte {
	r := rand.NewChaCha8([32]byte{})
	b := make([]byte, n)
	_, _ = r.Read(b) // does not fail
	return b
}

// TestUp moves bytes from a guest to a goroutine, which reads or is written to.
func TestUp(t *testing.T) {
	all := random(5 << 20)
	for name, take := range map[string]func(*Pipe, io.Writer) error{
		"Read": func(p *Pipe, w io.Writer) error {
			_, err := io.CopyBuffer(w, struct{ io.Reader }{p}, make([]byte, 7777))
			return err
		},
		"WriteTo": func(p *Pipe, w io.Writer) error { _, err := p.WriteTo(w); return err },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuest()
			p := New(g.notify)
			var got bytes.Buffer
			var joined sync.WaitGroup
			joined.Go(func() {
				if err := take(p, &got); err != nil {
					t.Error(err)
				}
			})
			for left := all; len(left) > 0; {
				n, err := p.Put(left[:min(len(left), 1+rand.IntN(300_000))])
				if isAgain(err) {
					<-g.notified
				} else if err != nil {
					t.Fatal(err)
				}
				left = left[n:]
			}
			p.End(io.EOF)
			joined.Wait()
			if !bytes.Equal(got.Bytes(), all) {
				t.Errorf("%d bytes of %d, or others", got.Len(), len(all))
			}
			if cap(p.ring) > Limit {
				t.Errorf("the pipe holds %d bytes", cap(p.ring))
			}
		})
	}
}

// TestDown moves bytes from a goroutine to a guest.
func TestDown(t *testing.T) {
	all := random(5 << 20)
	g := newGuest()
	p := New(g.notify)
	var joined sync.WaitGroup
	joined.Go(func() {
		from := bytes.NewReader(all)
		checked := 0
		for {
			n, err := p.Fill(func(b []byte) (int, error) { return from.Read(b[:1+rand.IntN(len(b))]) }, func(n int) error { checked += n; return nil })
			if err == io.EOF {
				break
			} else if err != nil || n == 0 {
				t.Errorf("%d, %v", n, err)
				break
			}
		}
		if checked != len(all) {
			t.Errorf("%d bytes were checked", checked)
		}
	})
	var got bytes.Buffer
	for {
		b := make([]byte, 1+rand.IntN(100_000))
		n, err := p.Get(b)
		got.Write(b[:n])
		if err == io.EOF {
			break
		} else if isAgain(err) {
			<-g.notified
		} else if err != nil {
			t.Fatal(err)
		}
	}
	joined.Wait()
	if !bytes.Equal(got.Bytes(), all) {
		t.Errorf("%d bytes of %d, or others", got.Len(), len(all))
	}
}

func TestEnds(t *testing.T) {
	why := errors.New("broken")
	t.Run("what is in it comes before the end", func(t *testing.T) {
		p := New(func() {})
		_, _ = p.Put([]byte("ab"))
		p.End(why)
		p.End(io.EOF)
		b := make([]byte, 1)
		for _, want := range []string{"a", "b"} {
			if n, err := p.Get(b); n != 1 || err != nil || string(b) != want {
				t.Errorf("%d, %v, %s", n, err, b)
			}
		}
		if _, err := p.Get(b); err != why {
			t.Error(err)
		}
		if _, err := p.Put(b); err != why {
			t.Error(err)
		}
	})
	t.Run("Break drops it", func(t *testing.T) {
		p := New(func() {})
		_, _ = p.Put([]byte("ab"))
		p.End(io.EOF)
		p.Break(why)
		if _, err := p.Get(make([]byte, 1)); err != why {
			t.Error(err)
		}
	})
	t.Run("Break after the end changes nothing", func(t *testing.T) {
		p := New(func() {})
		p.End(io.EOF)
		p.Break(why)
		if _, err := p.Read(make([]byte, 1)); err != io.EOF {
			t.Error(err)
		}
	})
	t.Run("a check refuses what was read", func(t *testing.T) {
		p := New(func() {})
		if n, err := p.Fill(func(b []byte) (int, error) { return 3, nil }, func(int) error { return why }); n != 0 || err != why {
			t.Errorf("%d, %v", n, err)
		}
		if _, err := p.Get(make([]byte, 10)); err != why {
			t.Error(err)
		}
	})
	t.Run("All", func(t *testing.T) {
		p := New(func() {})
		_, _ = p.Put([]byte("ab"))
		p.End(io.EOF)
		if all := p.All(); string(all) != "ab" {
			t.Errorf("%q", all)
		}
		if all := p.All(); len(all) != 0 {
			t.Errorf("%q", all)
		}
	})
	for name, wait := range map[string]func(*Pipe) error{
		"Read":    func(p *Pipe) error { _, err := p.Read(make([]byte, 1)); return err },
		"WriteTo": func(p *Pipe) error { _, err := p.WriteTo(io.Discard); return err },
		"Fill": func(p *Pipe) error {
			for {
				if _, err := p.Fill(func(b []byte) (int, error) { return len(b), nil }, nil); err != nil {
					return err
				}
			}
		},
	} {
		t.Run("Break ends "+name, func(t *testing.T) {
			p := New(func() {})
			over := make(chan error)
			go func() { over <- wait(p) }() // the test waits for it
			p.Break(why)
			if err := <-over; err != why {
				t.Error(err)
			}
		})
	}
}

// TestFull has a guest that does not read: the goroutine waits, with a bounded buffer.
func TestFull(t *testing.T) {
	g := newGuest()
	p := New(g.notify)
	for {
		n, err := p.Put(make([]byte, 100_000))
		if isAgain(err) {
			break
		} else if err != nil || n == 0 {
			t.Fatal(n, err)
		}
	}
	if p.size != Limit || len(p.ring) != Limit {
		t.Errorf("it holds %d of %d bytes", p.size, len(p.ring))
	}
	b := make([]byte, worth-1)
	if n, err := p.Read(b); n != len(b) || err != nil {
		t.Fatal(n, err)
	}
	select {
	case <-g.notified:
		t.Error("the guest is woken for little room")
	default:
	}
	if n, err := p.Read(b); n != len(b) || err != nil {
		t.Fatal(n, err)
	}
	<-g.notified
}
