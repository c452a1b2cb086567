// Command demo starts the servers that the examples talk to, runs a command beside
// them, and ends when it does:
//
//	demo bin/wasmjob run --plugins plugins/examples --grants plugins/grants.yaml
//
// Ctrl-C reaches the command by itself, which drains; the servers stay until then.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/wasmjob/wasmjob/test/demo/server"
	"github.com/wasmjob/wasmjob/test/pgserver"
)

const (
	// slowest is how long a client may take for the head of its request.
	slowest = 10 * time.Second
	// firstOrders is how many orders each city has at first; then there is one more
	// each newOrder.
	firstOrders = 2000
	newOrder    = time.Second
	// databasePort is the port that plugins/grants.yaml names.
	databasePort = 9785
	// patience is how long PostgreSQL may take to start.
	patience = time.Minute
	// The job sync has no cron, so that it does not fail without a database: it is
	// triggered each period here.
	period = 15 * time.Second
)

func main() {
	d := demo{}
	flag.StringVar(&d.listen, "listen", "127.0.0.1:9780", "the servers' address; plugins/grants.yaml and the definitions name it")
	flag.StringVar(&d.out, "out", "out", "the directory for reports and the token")
	flag.StringVar(&d.sales, "sales", "plugins/examples/report/sales", "what the job report reads: it is copied to the directory of -out, if it has none yet")
	flag.BoolVar(&d.postgres, "postgres", false, "start a PostgreSQL as well, for the job sync, and trigger it")
	flag.StringVar(&d.schema, "schema", "plugins/examples/sync/schema.sql", "the tables of the job sync")
	flag.Parse()
	code, err := d.run(context.Background(), flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

type demo struct {
	listen, out, sales, schema string
	postgres                   bool
}

// run runs the command beside the servers, and returns its exit code.
func (d *demo) run(ctx context.Context, command []string) (code int, err error) {
	if len(command) == 0 {
		return 2, errors.New("expected a command, such as bin/wasmjob run")
	}
	if err := d.directories(); err != nil {
		return 1, err
	}
	token, password := rand.Text(), rand.Text()
	if d.postgres {
		db, err := d.database(ctx)
		if err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		password = db.Password
	}
	for name, secret := range map[string]string{"webhook-token": token, "db-password": password} {
		if err := os.WriteFile(filepath.Join(d.out, name), []byte(secret+"\n"), 0o600); err != nil {
			return 1, err
		}
	}
	listener, err := net.Listen("tcp", d.listen)
	if err != nil {
		return 1, fmt.Errorf("%w (does another make run go on?)", err)
	}
	routes := http.NewServeMux()
	routes.Handle("/webhook", &server.Webhook{Token: token, Busy: 2, Report: func(line string) {
		fmt.Printf("%s  webhook             %s\n", time.Now().Format(time.TimeOnly), line)
	}})
	start := time.Now()
	routes.Handle("/orders", &server.Orders{Count: func() int64 { return firstOrders + int64(time.Since(start)/newOrder) }})
	s := &http.Server{Handler: routes, ReadHeaderTimeout: slowest}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }() // joined below
	defer func() {
		err = errors.Join(err, s.Close())
		if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
			err = errors.Join(err, failed)
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if d.postgres {
		triggered := make(chan struct{})
		go func() { // joined below
			defer close(triggered)
			sync(ctx, command[0])
		}()
		defer func() {
			cancel()
			<-triggered
		}()
	}
	return beside(command)
}

// database starts PostgreSQL with the tables of the job sync.
func (d *demo) database(ctx context.Context) (*pgserver.Server, error) {
	schema, err := os.ReadFile(d.schema)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	db, err := pgserver.Start(ctx, pgserver.Options{Port: databasePort})
	if err != nil {
		return nil, err
	}
	if _, err := db.Query(ctx, string(schema)); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	fmt.Printf("PostgreSQL answers. Look at what sync copies:\n\n  PGPASSWORD=$(cat %s) psql '%s' -c 'select * from revenue'\n\n", filepath.Join(d.out, "db-password"), db.URL())
	return db, nil
}

// sync triggers the job of that name each period, until ctx is done.
func sync(ctx context.Context, program string) {
	ticks := time.NewTicker(period)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			_ = exec.CommandContext(ctx, program, "job", "run", "sync").Run() // the host reports why it does not run
		case <-ctx.Done():
			return
		}
	}
}

// directories makes those that plugins/grants.yaml names.
func (d *demo) directories() error {
	if err := os.MkdirAll(filepath.Join(d.out, "reports"), 0o755); err != nil {
		return err
	}
	sales := filepath.Join(d.out, "sales")
	if _, err := os.Stat(sales); err == nil {
		return nil // somebody may have added to them
	}
	return os.CopyFS(sales, os.DirFS(d.sales))
}

// beside runs the command to its end. The terminal sends Ctrl-C to both; what else
// would end this process is passed on.
func beside(command []string) (code int, err error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // joined by the loop
	for {
		select {
		case sig := <-signals:
			if sig != os.Interrupt {
				_ = cmd.Process.Signal(sig) // if it has ended, all the better
			}
		case err := <-ended:
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				return max(exit.ExitCode(), 1), nil
			}
			return 0, err
		}
	}
}
