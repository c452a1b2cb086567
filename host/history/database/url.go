package database

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/internal/text/times"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// The defaults of how long records are kept.
const (
	DefaultSuccesses = 7 * day
	DefaultFailures  = 90 * day
	DefaultAudit     = 400 * day

	day = 24 * time.Hour
)

// Retention is how long records are kept, by when they began; 0 is for ever.
type Retention struct {
	// Successes is for runs that were OK, and for their fires, events and lines; Failures
	// for the others, for runs that have not ended, and for events that are about no run
	// and say that something is wrong.
	Successes, Failures time.Duration
	// Audit is for changes.
	Audit time.Duration
}

// Config is a URL that was read. It holds the password: do not print it.
type Config struct {
	// Where is the URL without a password and our options.
	Where     string
	Retention Retention
	// Size bounds what runs, events and lines take on a server, in bytes; 0 is no bound.
	Size int64
	// ElasticJob: ElasticJob's two tables are written as well.
	ElasticJob bool
	// Password: the URL has one.
	Password bool
	// Spool is the directory of the option spool, empty if that is not given.
	Spool string

	dialect dialect
	secret  string // the password
	path    string // of SQLite
	log     string // the file of JSON lines that SQLite follows; empty: none
	memory  bool   // SQLite in memory
	// readOnly: nothing is written, and no file is made.
	readOnly bool
	pgx      *pgx.ConnConfig // of PostgreSQL
	mysql    *mysql.Config   // of MySQL
}

// InFile is the history of one host in a file of JSON lines, which SQLite follows in the file
// PATH.db beside it. Its size alone bounds what is kept.
func InFile(path string) (*Config, error) {
	path, err := filepath.Abs(path) // the working directory may change
	if err != nil {
		return nil, err
	}
	return &Config{Where: path, dialect: sqlite, path: path + ".db", log: path}, nil
}

// InMemory is the history of one host in memory: the newest 32 MiB, until the store is closed.
func InMemory() *Config { return &Config{Where: "memory", dialect: sqlite, memory: true} }

// ourOptions are those that all databases have; servers have size, too.
const ourOptions = "successes, failures, audit, elasticjob or spool"

// Path is the file of SQLite, empty for the others.
func (c *Config) Path() string { return c.path }

// local reports whether no other host writes there, and writing takes no time to speak of.
func (c *Config) local() bool { return c.memory || c.log != "" }

// Redact is a URL as it may be shown, right or wrong; other texts stay.
func Redact(text string) string {
	scheme, _, found := strings.Cut(text, "://")
	if !found {
		return text
	}
	u, err := url.Parse(text)
	if err != nil {
		return scheme + "://…"
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return scheme + "://…"
	}
	for _, secret := range secretOptions() {
		if values.Has(secret) {
			values.Set(secret, "xxxxx")
		}
	}
	u.RawQuery = values.Encode()
	return u.Redacted()
}

// secretOptions are libpq's that hold passwords.
func secretOptions() []string { return []string{"password", "sslpassword"} }

// Shared reports whether hosts on several machines can use the database.
func (c *Config) Shared() bool { return c.dialect.shared() }

// scheme begins what is meant to be a URL. A file of such a name is named with its folder.
var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+]*:`)

// IsURL reports whether a text is meant to be a URL of a database, right or wrong.
func IsURL(text string) bool { return scheme.MatchString(text) || strings.Contains(text, "://") }

// ErrURL is wrapped by the errors of Parse.
var ErrURL = errors.New("not the URL of a history")

// Parse reads sqlite:PATH, postgres://… or mysql://…, with our options in its query:
// successes, failures and audit (durations, or off), size, elasticjob and spool. credentials are
// user:password, which take the place of those of the URL; they may be empty. No error
// shows a password.
func Parse(text, credentials string) (*Config, error) {
	const expected = "expected sqlite:PATH, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE"
	scheme, rest, found := strings.Cut(text, ":")
	if !found {
		return nil, fmt.Errorf("%w: found no scheme, %s", ErrURL, expected)
	}
	switch strings.ToLower(scheme) {
	case "sqlite":
		return parseSQLite(rest, credentials)
	case "postgres", "postgresql", "mysql":
		return parseServer(strings.ToLower(scheme), text, credentials)
	}
	file := ""
	if !strings.Contains(rest, "@") && !strings.HasPrefix(rest, "//") { // else it is no file, and may have a password
		file = fmt.Sprintf(" (a file of that name is ./%.80s)", text)
	}
	return nil, fmt.Errorf("%w: found the scheme %.20q, %s%s%s", ErrURL, scheme, expected, file, words.Suggest(scheme, []string{"sqlite", "postgres", "mysql"}))
}

func parseSQLite(rest, credentials string) (*Config, error) {
	name, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("%w: the options after ?: %w", ErrURL, err)
	}
	c := &Config{dialect: sqlite}
	if err := c.options(values); err != nil {
		return nil, err
	}
	for key := range values {
		return nil, fmt.Errorf("%w: found the option %.40q, expected %s", ErrURL, key, ourOptions)
	}
	switch {
	case name == "":
		return nil, fmt.Errorf("%w: sqlite: needs a file's name, such as sqlite:/var/lib/wasmjob/history.db", ErrURL)
	case strings.HasPrefix(name, "//"):
		return nil, fmt.Errorf("%w: found sqlite:%.80s, expected a path without //, such as sqlite:/var/lib/wasmjob/history.db", ErrURL, name)
	case strings.ContainsAny(name, "\x00#"):
		return nil, fmt.Errorf("%w: found %.80q, expected a file's name without # and NUL", ErrURL, name)
	case credentials != "":
		return nil, fmt.Errorf("%w: SQLite takes no credentials", ErrURL)
	}
	if c.path, err = filepath.Abs(name); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	c.Where = "sqlite:" + c.path
	return c, nil
}

// parseServer reads the URL of a server's database.
func parseServer(scheme, text, credentials string) (*Config, error) {
	u, err := url.Parse(text)
	if err != nil { // its text may have the password
		return nil, fmt.Errorf("%w: expected %s://USER@HOST:PORT/DATABASE; in a user's name or a password, %%XX stands for characters such as / @ : %% #", ErrURL, scheme)
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("%w: the options after ?: %w", ErrURL, err)
	}
	c := &Config{dialect: postgres}
	if scheme == "mysql" {
		c.dialect = mySQL
	}
	if err := c.options(values); err != nil {
		return nil, err
	}
	if u.Fragment != "" || u.Opaque != "" {
		return nil, fmt.Errorf("%w: expected %s://USER@HOST:PORT/DATABASE; in a password, %%23 stands for #", ErrURL, scheme)
	}
	if _, c.Password = u.User.Password(); credentials != "" {
		user, password, _ := strings.Cut(credentials, ":")
		u.User = url.UserPassword(user, password)
	}
	c.secret, _ = u.User.Password()
	u.RawQuery = values.Encode()
	if c.dialect == postgres {
		err = c.postgres(*u)
	} else {
		err = c.mySQL(u, values)
	}
	if err != nil {
		return nil, err
	}
	shown := *u
	if u.User != nil {
		shown.User = url.User(u.User.Username())
	}
	for _, secret := range secretOptions() {
		values.Del(secret)
	}
	shown.RawQuery = values.Encode()
	c.Where = shown.String()
	return c, nil
}

func (c *Config) postgres(u url.URL) error {
	config, err := pgx.ParseConfig(u.String())
	if err != nil { // pgx takes passwords out of its errors, but not out of what url.Parse says
		return fmt.Errorf("%w: expected postgres://USER@HOST:PORT/DATABASE, with the options of libpq: %s", ErrURL, c.withoutPassword(err.Error()))
	}
	config.ConnectTimeout = connectTimeout
	c.pgx, c.secret = config, config.Password
	c.Password = c.Password || u.Query().Has("password")
	return nil
}

// withoutPassword is a text without the password.
func (c *Config) withoutPassword(text string) string {
	if c.secret == "" {
		return text
	}
	for _, s := range []string{c.secret, url.PathEscape(c.secret), url.QueryEscape(c.secret)} {
		text = strings.ReplaceAll(text, s, "xxxxx")
	}
	return text
}

func (c *Config) mySQL(u *url.URL, values url.Values) error {
	config := mysql.NewConfig()
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Net, config.DBName = "tcp", strings.TrimPrefix(u.Path, "/")
	port := u.Port()
	if port == "" {
		port = "3306"
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil || u.Hostname() == "" || config.DBName == "" || strings.Contains(config.DBName, "/") {
		return fmt.Errorf("%w: expected mysql://USER@HOST:PORT/DATABASE", ErrURL)
	}
	config.Addr = net.JoinHostPort(u.Hostname(), port)
	config.Timeout = connectTimeout
	config.TLSConfig = "preferred"
	for key, list := range values {
		value := list[len(list)-1]
		switch key {
		case "tls":
			if !slices.Contains([]string{"true", "false", "skip-verify", "preferred"}, value) {
				return fmt.Errorf("%w: tls: found %.40q, expected true, false, skip-verify or preferred", ErrURL, value)
			}
			config.TLSConfig = value
		default:
			return fmt.Errorf("%w: found the option %.40q, expected tls, size, %s", ErrURL, key, ourOptions)
		}
	}
	c.mysql = config
	return nil
}

// options takes our options out of a query.
func (c *Config) options(values url.Values) error {
	c.Retention = Retention{DefaultSuccesses, DefaultFailures, DefaultAudit}
	for key, into := range map[string]*time.Duration{"successes": &c.Retention.Successes, "failures": &c.Retention.Failures, "audit": &c.Retention.Audit} {
		if !values.Has(key) {
			continue
		}
		d, err := parseKeep(values.Get(key))
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrURL, key, err)
		}
		*into = d
		values.Del(key)
	}
	if r := c.Retention; r.Failures != 0 && (r.Successes == 0 || r.Successes > r.Failures) {
		return fmt.Errorf("%w: successes are kept longer than failures; expected at most as long", ErrURL)
	}
	if values.Has("size") {
		size, err := c.parseSize(values.Get("size"))
		if err != nil {
			return fmt.Errorf("%w: size: %w", ErrURL, err)
		}
		c.Size = size
		values.Del("size")
	}
	if values.Has("spool") {
		if c.Spool = values.Get("spool"); c.Spool == "" {
			return fmt.Errorf("%w: spool: found nothing, expected a directory", ErrURL)
		}
		values.Del("spool")
	}
	if values.Has("elasticjob") {
		on, err := strconv.ParseBool(values.Get("elasticjob"))
		if err != nil {
			return fmt.Errorf("%w: elasticjob: found %.40q, expected true or false", ErrURL, values.Get("elasticjob"))
		}
		c.ElasticJob = on
		values.Del("elasticjob")
	}
	return nil
}

// leastSize is what tables take in which there is next to nothing: PostgreSQL's, of a hundred days.
const leastSize = 64 << 20

// parseSize reads 50GiB or off.
func (c *Config) parseSize(s string) (int64, error) {
	if !c.dialect.shared() {
		return 0, fmt.Errorf("found it for SQLite, whose file is bounded by the host's setting --history-size; expected it for a server")
	}
	if s == "off" {
		return 0, nil
	}
	n, ok := jobconfig.ParseSize(s)
	if !ok || n < leastSize {
		return 0, fmt.Errorf("found %.40q, expected off or a size of at least %s, such as 50GiB", s, jobconfig.ShowSize(leastSize))
	}
	return n, nil
}

// leastKeep is a day: PostgreSQL's tables are divided by days.
const leastKeep = day

// parseKeep reads 30d, 1d12h, 36h or off.
func parseKeep(s string) (time.Duration, error) {
	bad := fmt.Errorf("found %.40q, expected off or a duration of at least a day, such as 30d", s)
	if s == "off" {
		return 0, nil
	}
	d, err := times.Duration(s)
	if err != nil || d < leastKeep {
		return 0, bad
	}
	return d, nil
}
