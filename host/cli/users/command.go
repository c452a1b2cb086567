// Package users has the commands about who may use a host: user and token, which edit
// its users file, and login.
package users

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/cli/command"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/password"
	"github.com/wasmjob/wasmjob/host/auth/users"
	"github.com/wasmjob/wasmjob/host/cli/show"
	"github.com/wasmjob/wasmjob/host/config/filelock"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Commands are user and token, with those below them, and login. users is the file that is
// edited unless the flag --users names one; empty: none.
func Commands(p *command.Program, users string) []*cobra.Command {
	return []*cobra.Command{userCommand(p, users), tokenCommand(p, users), loginCommand(p)}
}

// usersFile is the file that a command edits.
type usersFile struct {
	name, standard string
	made           bool // edit has made it
}

// add makes the flag.
func (f *usersFile) add(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&f.name, "users", f.standard, "the users `FILE`, that of 'wasmjob run --users'")
}

// path is the file, or the error that there is none.
func (f *usersFile) path() (string, error) {
	if f.name == "" || f.name == "off" {
		return "", command.Usagef("--users is missing, the file with users and tokens; without a home directory there is no default")
	}
	return f.name, nil
}

func (f *usersFile) read() (*users.Set, error) {
	path, err := f.path()
	if err != nil {
		return nil, err
	}
	return users.Read(path)
}

func (f *usersFile) edit(change func(*users.Document) error) error {
	path, err := f.path()
	if err != nil {
		return err
	}
	_, missing := os.Stat(path)
	err = users.Edit(path, change)
	f.made = err == nil && errors.Is(missing, fs.ErrNotExist)
	return err
}

// edited is the file for who has edited it. Of a new one that is not the standard one, it says that a
// host has to be given it.
func (f *usersFile) edited() string {
	if !f.made || f.name == f.standard {
		return f.name
	}
	return f.name + ", a new file, which a host reads with --users " + words.Argument(f.name)
}

// rolesFlag adds --role.
func rolesFlag(cmd *cobra.Command, into *[]string) {
	cmd.Flags().StringArrayVar(into, "role", nil, "`ROLE=JOBS`: viewer, operator, author or admin, and patterns of job names with commas between them, such as operator=etl-*,report; ROLE alone is for all jobs; may be repeated")
}

// bindings reads --role.
func bindings(roles []string) (list []auth.Binding, err error) {
	if len(roles) == 0 {
		return nil, command.Usagef("--role is missing, such as --role operator=etl-* (roles are %s)", strings.Join(auth.Roles(), ", "))
	}
	for _, text := range roles {
		b, err := auth.ParseBinding(text)
		if err != nil {
			return nil, command.Usage(fmt.Errorf("--role %s: %w", words.Clip(text), err))
		}
		list = append(list, b)
	}
	return list, nil
}

func userCommand(p *command.Program, users string) *cobra.Command {
	f := &usersFile{standard: users}
	cmd := command.Group("user", "Say who may do what", `Add, list and remove users, and change their passwords, in the users file of a
host, which reads it again when it changes; 'wasmjob status' shows which file that
is. Roles are changed with an editor.
docs/access.md has the roles.`,
		"  wasmjob access user add ann --role operator='etl-*' --role viewer\n  wasmjob access user list",
		userAddCommand(p, f), userListCommand(p, f), userRemoveCommand(p, f), userPasswdCommand(p, f))
	f.add(cmd)
	return cmd
}

func userAddCommand(p *command.Program, f *usersFile) *cobra.Command {
	var roles, subjects []string
	var passwordFile string
	without := false
	cmd := &cobra.Command{
		Use:   "add NAME --role ROLE=JOBS… [flags]",
		Short: "Add a user",
		Long: `Add a user with roles, each for the jobs of some patterns. The password, of at
least 12 characters, is asked for, or comes from --password-file.`,
		Example: `  wasmjob access user add ann --role operator='etl-*' --role viewer
  wasmjob access user add deploy --role author --no-password --certificate 'CN=deploy,O=Example'`,
		Args: command.Exactly("the user's name"),
		RunE: func(_ *cobra.Command, args []string) error {
			list, err := bindings(roles)
			if err != nil {
				return err
			}
			if err := users.CheckName(args[0]); err != nil {
				return command.Usage(err)
			}
			var hash password.Hash
			if !without {
				if hash, err = newPassword(p, args[0], passwordFile); err != nil {
					return err
				}
			}
			err = f.edit(func(d *users.Document) error { return d.AddUser(args[0], list, hash, subjects) })
			return p.Done(err, "added "+args[0]+" to "+f.edited())
		},
	}
	rolesFlag(cmd, &roles)
	cmd.Flags().StringVar(&passwordFile, "password-file", "", "`FILE` with the password")
	cmd.Flags().BoolVar(&without, "no-password", false, "the user signs in by a certificate only")
	cmd.Flags().StringArrayVar(&subjects, "certificate", nil, "`SUBJECT` of a client certificate that stands for the user, such as CN=ann,O=Example; may be repeated")
	cmd.MarkFlagsMutuallyExclusive("no-password", "password-file")
	return cmd
}

// listed is a user or a token as JSON has it, without what the file has of its secret.
type listed struct {
	Name     string         `json:"name"`
	Bindings []auth.Binding `json:"roles"`
	// Password says that a user has one.
	Password     bool      `json:"password,omitempty"`
	Certificates []string  `json:"certificates,omitempty"`
	Created      time.Time `json:"created,omitzero"`
	Expires      time.Time `json:"expires,omitzero"`
}

func userListCommand(p *command.Program, f *usersFile) *cobra.Command {
	var how command.Shown
	cmd := &cobra.Command{
		Use: "list [flags]", Short: "List users and their roles", Example: "  wasmjob access user list\n  wasmjob access user list --users /etc/wasmjob/users.yaml", Args: command.Exactly(),
		RunE: func(*cobra.Command, []string) error {
			set, err := f.read()
			if err != nil {
				return err
			}
			list := []listed{}
			for _, u := range set.Users() {
				list = append(list, listed{Name: u.Name, Bindings: u.Bindings, Password: !u.Password.Zero(), Certificates: u.Certificates})
			}
			return p.Print(&how, list, show.Users(p.Tables(), set.Users()))
		},
	}
	how.AddOutput(cmd, "them")
	return cmd
}

func userRemoveCommand(p *command.Program, f *usersFile) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME [flags]", Short: "Remove a user, whose sessions end", Example: "  wasmjob access user remove ann", Args: command.Exactly("the user's name"),
		RunE: func(_ *cobra.Command, args []string) error {
			return p.Done(f.edit(func(d *users.Document) error { return d.RemoveUser(args[0]) }), "removed "+args[0]+" from "+f.name)
		},
	}
}

func userPasswdCommand(p *command.Program, f *usersFile) *cobra.Command {
	var passwordFile string
	cmd := &cobra.Command{
		Use: "passwd NAME [flags]", Short: "Change a user's password, which ends the user's sessions", Example: "  wasmjob access user passwd ann", Args: command.Exactly("the user's name"),
		RunE: func(_ *cobra.Command, args []string) error {
			set, err := f.read()
			if err != nil {
				return err
			}
			if _, ok := set.User(args[0]); !ok {
				return fmt.Errorf("%s: there is no user %q", f.name, words.Clip(args[0]))
			}
			hash, err := newPassword(p, args[0], passwordFile)
			if err != nil {
				return err
			}
			return p.Done(f.edit(func(d *users.Document) error { return d.SetPassword(args[0], hash) }), args[0]+" has another password in "+f.name)
		},
	}
	cmd.Flags().StringVar(&passwordFile, "password-file", "", "`FILE` with the password")
	return cmd
}

// newPassword hashes the password in a file, or one that is asked for twice.
func newPassword(p *command.Program, user, file string) (password.Hash, error) {
	if file != "" {
		data, err := command.ReadFile(file, command.MostSecret)
		if err != nil {
			return password.Hash{}, fmt.Errorf("--password-file: %w", err)
		}
		return password.New(strings.TrimRight(string(data), "\r\n"))
	}
	in, ok := p.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return password.Hash{}, command.Usagef("a password is needed, and there is no terminal to ask for it; expected --password-file")
	}
	var texts [2]string
	for i, prompt := range []string{"Password for " + user + ": ", "Once more: "} {
		fmt.Fprint(p.Err, prompt)
		text, err := term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(p.Err)
		if err != nil {
			return password.Hash{}, err
		}
		texts[i] = string(text)
		if err := password.Check(texts[i]); err != nil {
			return password.Hash{}, err
		}
	}
	if !auth.NewSecret(texts[0]).Is(texts[1]) {
		return password.Hash{}, command.Usagef("the two passwords differ")
	}
	return password.New(texts[0])
}

func tokenCommand(p *command.Program, users string) *cobra.Command {
	f := &usersFile{standard: users}
	cmd := command.Group("token", "Give programs tokens", `Create, list and revoke tokens, in the users file of a host. A program sends its
token with each request, as "Authorization: Bearer TOKEN"; commands read it from
--token-file.`,
		"  wasmjob access token create ci --role operator='etl-*' --out token\n  wasmjob access token revoke ci",
		tokenCreateCommand(p, f), tokenListCommand(p, f), tokenRevokeCommand(p, f))
	f.add(cmd)
	return cmd
}

const defaultTokenLife = "90d"

func tokenCreateCommand(p *command.Program, f *usersFile) *cobra.Command {
	var roles []string
	life, out, force := defaultTokenLife, "", false
	cmd := &cobra.Command{
		Use:   "create NAME --role ROLE=JOBS… [flags]",
		Short: "Create a token, and print it or write it to a file: it is shown once",
		Example: `  wasmjob access token create ci --role operator='etl-*' --expires 30d --out token
  wasmjob job list --token-file token`,
		Args: command.Exactly("the token's name"),
		RunE: func(_ *cobra.Command, args []string) error {
			list, err := bindings(roles)
			if err != nil {
				return err
			}
			if err := users.CheckName(args[0]); err != nil {
				return command.Usage(err)
			}
			now := time.Now()
			expires, err := users.Expiry(life, now)
			if err != nil {
				return command.Usage(fmt.Errorf("--expires: %w", err))
			}
			if err := free(out, force); err != nil {
				return err
			}
			text := ""
			err = f.edit(func(d *users.Document) (err error) {
				text, err = d.AddToken(args[0], list, now, expires)
				return err
			})
			if err != nil {
				return err
			}
			created := fmt.Sprintf("created the token %s in %s; it expires at %s. It is ", args[0], f.edited(), expires.UTC().Format(time.RFC3339))
			if out == "" {
				fmt.Fprintln(p.Err, created+"shown here once:")
				_, err = fmt.Fprintln(p.Out, text)
				return err
			}
			if err := filelock.Replace(out, 0o600, []byte(text+"\n")); err != nil {
				return fmt.Errorf("the token %s is created, and cannot be written to a file: %w; revoke it and create another one", args[0], err)
			}
			return p.Done(nil, created+"in "+out+", which only you can read, and nowhere else")
		},
	}
	rolesFlag(cmd, &roles)
	cmd.Flags().StringVar(&life, "expires", life, "`WHEN` it expires: after 90d or 12h, or at 2027-01-31")
	cmd.Flags().StringVar(&out, "out", "", "write the token to this `FILE`, with mode 0600, instead of printing it")
	cmd.Flags().BoolVar(&force, "force", false, "write over a file that exists")
	return cmd
}

// free says that a file is not to be written over; no name is free.
func free(name string, force bool) error {
	if name == "" || force {
		return nil
	}
	_, err := os.Lstat(name)
	if err == nil {
		return fmt.Errorf("%s exists; --force writes over it", name)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func tokenListCommand(p *command.Program, f *usersFile) *cobra.Command {
	var how command.Shown
	cmd := &cobra.Command{
		Use: "list [flags]", Short: "List tokens, their roles and when they expire", Example: "  wasmjob access token list", Args: command.Exactly(),
		RunE: func(*cobra.Command, []string) error {
			set, err := f.read()
			if err != nil {
				return err
			}
			list := []listed{}
			for _, k := range set.Tokens() {
				list = append(list, listed{Name: k.Name, Bindings: k.Bindings, Created: k.Created, Expires: k.Expires})
			}
			return p.Print(&how, list, show.Tokens(p.Tables(), set.Tokens(), time.Now()))
		},
	}
	how.AddOutput(cmd, "them")
	return cmd
}

func tokenRevokeCommand(p *command.Program, f *usersFile) *cobra.Command {
	return &cobra.Command{
		Use: "revoke NAME [flags]", Short: "Revoke a token, at once", Example: "  wasmjob access token revoke ci", Args: command.Exactly("the token's name"),
		RunE: func(_ *cobra.Command, args []string) error {
			return p.Done(f.edit(func(d *users.Document) error { return d.RevokeToken(args[0]) }), "revoked "+args[0]+" in "+f.name)
		},
	}
}

func loginCommand(p *command.Program) *cobra.Command {
	var t *command.Target
	cmd := &cobra.Command{
		Use:   "login [flags]",
		Short: "Print a link that signs a browser in",
		Long: `Ask the host for a link that signs a browser in, once and within five minutes, with
the rights of the host's own token: the role admin for all jobs.`,
		Example: "  wasmjob access login\n  wasmjob access login --admin 10.0.0.7:9770 --token-file token --ca authorities.pem",
		Args:    command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.With(cmd, t, func(ctx context.Context, r *command.Reached) error {
				link, err := r.Client.LoginLink(ctx)
				return p.Done(err, link)
			})
		},
	}
	t = p.AddHost(cmd)
	return cmd
}
