// Package oidcserver runs a real OpenID Connect provider on this machine, for tests. The
// provider is a program of its own (op), in a module of its own; it ends with the process
// that started it.
package oidcserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Program is the provider's file.
type Program string

// Build makes the program in a directory. The first time fetches the provider's modules.
func Build(ctx context.Context, dir string) (Program, error) {
	here, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/wasmjob/wasmjob/test/oidcserver").Output()
	if err != nil {
		return "", fmt.Errorf("oidcserver: where the source is: %w", err)
	}
	name := filepath.Join(dir, "op")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", name, ".")
	cmd.Dir, cmd.Env = filepath.Join(strings.TrimSpace(string(here)), "op"), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("oidcserver: %w\n%s", err, out)
	}
	return Program(name), nil
}

// Options say what the provider knows.
type Options struct {
	// Listen is IP:PORT; empty is a free port of the loopback address.
	Listen string
	// ClientSecret is empty for a public client. Redirects are where browsers may be
	// sent back to.
	ClientID, ClientSecret string
	Redirects              []string
	// TokenLife is that of ID tokens: an hour if it is 0.
	TokenLife time.Duration
	// GroupsInToken has the groups in the ID token; else they are given on request.
	GroupsInToken bool
	// Audiences are further ones of the ID token, beside the client.
	Audiences []string
	Users     []User
}

// User is somebody whom the provider knows.
type User struct {
	Name, Password, Email string
	Verified              bool
	Groups                []string
}

// Server is a provider that runs.
type Server struct {
	// Issuer is its address.
	Issuer string

	cmd   *exec.Cmd
	input io.WriteCloser
	log   strings.Builder
}

// Start starts the program; it listens when Start returns.
func (p Program) Start(o Options) (*Server, error) {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.TokenLife == 0 {
		o.TokenLife = time.Hour
	}
	settings, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("oidcserver: %w", err)
	}
	s := &Server{cmd: exec.Command(string(p))}
	s.cmd.Stderr = &s.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("oidcserver: %w", err)
	}
	if s.input, err = s.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("oidcserver: %w", err)
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("oidcserver: %w", err)
	}
	if _, err := s.input.Write(settings); err != nil {
		return nil, errors.Join(fmt.Errorf("oidcserver: %w", err), s.Close())
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("oidcserver: %w", err), s.Close())
	}
	s.Issuer = strings.TrimSpace(line)
	return s, nil
}

// Close ends the provider, and waits for it. The error has what the provider wrote.
func (s *Server) Close() error {
	_ = s.input.Close() // the program may have ended
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("oidcserver: %w\n%s", err, s.log.String())
	}
	return nil
}
