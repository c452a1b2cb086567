package program

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/invoke"
	"github.com/wasmjob/wasmjob/host/config/filelock"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/config/signature"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// passwordVariable holds the password of a private key.
const passwordVariable = "WASMJOB_SIGN_PASSWORD"

// signing is what `wasmjob module sign` was asked to do.
type signing struct {
	key, newKey, passwordFile string
	noPassword                bool
}

func signCommand(p *program) *cobra.Command {
	o := &signing{}
	cmd := &cobra.Command{
		Use:   "sign MODULE.wasm… [flags]",
		Short: "Sign modules, for hosts that demand it",
		Long: `Sign modules with a private key of minisign: MODULE.wasm.minisig is written beside
each. Hosts check it if their grants name the public key; so does the minisign
program.

--new-key NAME makes a pair of keys, NAME.key and NAME.pub. The private one is
encrypted with a password, which is asked for, or comes from the variable
` + passwordVariable + ` or --password-file; that takes some seconds and 1 GiB
of memory, here and each time that it is used.`,
		Example: `  wasmjob module sign --new-key release
  wasmjob module sign report.wasm --key release.key`,
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case o.newKey != "" && (len(args) > 0 || o.key != ""):
				return command.Usagef("--new-key makes a key and signs nothing; expected no module and no --key")
			case o.newKey != "":
				return newKey(p, o)
			case len(args) == 0:
				return command.Usagef("the module's file is missing")
			case o.key == "":
				return command.Usagef("--key is missing, the file with the private key ('wasmjob module sign --new-key NAME' makes one)")
			}
			return sign(p, o, args)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.key, "key", "", "`FILE` with the private key")
	f.StringVar(&o.newKey, "new-key", "", "make the pair of keys `NAME`.key and NAME.pub; they must not exist")
	f.StringVar(&o.passwordFile, "password-file", "", "`FILE` with the password of the private key")
	f.BoolVar(&o.noPassword, "no-password", false, "with --new-key: do not encrypt the private key")
	return cmd
}

// newKey makes a pair of keys.
func newKey(p *program, o *signing) error {
	files := []string{o.newKey + ".key", o.newKey + ".pub"}
	for _, name := range files {
		if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
			return errors.Join(fmt.Errorf("%s exists already; a key that is lost cannot be made again", name), err)
		}
	}
	password := ""
	if !o.noPassword {
		var err error
		if password, err = passwordFor(p, o, "Password for "+files[0]+": "); err != nil {
			return err
		}
		if password == "" {
			return command.Usagef("the password is empty; expected one, or --no-password")
		}
	}
	key, err := signature.NewKey()
	if err != nil {
		return err
	}
	private, public, err := key.Files(password)
	if err != nil {
		return err
	}
	for i, data := range [][]byte{private, public} {
		if err := writeNew(files[i], data, []os.FileMode{0o600, 0o644}[i]); err != nil {
			return err
		}
	}
	name := filepath.Base(o.newKey)
	_, err = fmt.Fprintf(p.Out, "%s signs, keep it secret\n%s checks; in the grants:\n\n  keys:\n    %s: %s\n", files[0], files[1], name, key.Public(name))
	return err
}

// writeNew writes a file that must not exist.
func writeNew(name string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// passwordFor is that of a private key: from a file, from the environment, or asked for.
func passwordFor(p *program, o *signing, prompt string) (string, error) {
	if o.passwordFile != "" {
		data, err := command.ReadFile(o.passwordFile, command.MostSecret)
		if err != nil {
			return "", fmt.Errorf("--password-file: %w", err)
		}
		return strings.TrimRight(string(data), "\r\n"), nil
	}
	if password := p.Getenv(passwordVariable); password != "" {
		return password, nil
	}
	in, ok := p.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return "", command.Usagef("a password is needed, and there is no terminal to ask for it; expected %s or --password-file", passwordVariable)
	}
	fmt.Fprint(p.Err, prompt)
	password, err := term.ReadPassword(int(in.Fd()))
	fmt.Fprintln(p.Err)
	return string(password), err
}

func sign(p *program, o *signing, modules []string) error {
	data, err := command.ReadFile(o.key, command.MostSecret)
	if err != nil {
		return fmt.Errorf("--key: %w", err)
	}
	password := ""
	if signature.Encrypted(data) {
		if password, err = passwordFor(p, o, "Password of "+o.key+": "); err != nil {
			return err
		}
	}
	key, err := signature.ParsePrivate(data, password)
	if err != nil {
		return fmt.Errorf("--key: %s: %w", o.key, err)
	}
	for _, file := range modules {
		module, err := invoke.ReadModule(file)
		if err != nil {
			return err
		}
		sig, err := key.Sign(module, filepath.Base(file), time.Now())
		if err != nil {
			return err
		}
		if err := filelock.Replace(file+signature.Suffix, 0o644, sig); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(p.Out, "%s is signed by %s\n", file+signature.Suffix, key.Public("").ID()); err != nil {
			return err
		}
	}
	return nil
}

func verifySignatureCommand(p *program) *cobra.Command {
	var keys []string
	var granted, job string
	cmd := &cobra.Command{
		Use:   "verify-signature MODULE.wasm [flags]",
		Short: "Check who signed a module",
		Long: `Check the signature beside a module, MODULE.wasm.minisig, with public keys (--key),
or with those that the grants name (--grants), as a host would do it for the job
(--job). The exit code is 1 if the module is not signed by one of them.`,
		Example: `  wasmjob module verify-signature report.wasm --key release.pub
  wasmjob module verify-signature report.wasm --grants grants.yaml`,
		Args: command.Exactly("the module's file"),
		RunE: func(_ *cobra.Command, args []string) error {
			set, err := readGrants(p, granted)
			if err != nil {
				return err
			}
			known, err := publicKeys(keys)
			if err != nil {
				return err
			}
			known = append(known, keysFor(set, cmp.Or(job, jobOf(args[0])))...)
			if len(known) == 0 {
				return command.Usagef("there is no key; expected --key FILE, or --grants FILE with keys")
			}
			return verifySignature(p, args[0], known)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"wasm"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	cmd.Flags().StringArrayVar(&keys, "key", nil, "a public key: a `FILE` such as release.pub, or its line of text, RW…; may be repeated")
	addGrantsFlag(cmd.Flags(), &granted)
	cmd.Flags().StringVar(&job, "job", "", "`NAME` of the job that is to run the module (default: that of the module's file)")
	return cmd
}

// keysFor are the keys of which one must have signed the job's modules; where none must, all.
func keysFor(set *grants.Set, job string) []signature.Key {
	if keys := set.TrustFor(job); keys != nil {
		return keys
	}
	return set.Keys()
}

// publicKeys reads keys, each of them its text or the name of a file.
func publicKeys(list []string) ([]signature.Key, error) {
	var keys []signature.Key
	for _, text := range list {
		name := strings.TrimSuffix(filepath.Base(text), ".pub")
		key, err := signature.ParseKey(text, text)
		if err != nil {
			data, failed := command.ReadFile(text, command.MostSecret)
			if failed != nil {
				return nil, command.Usage(fmt.Errorf("--key: %w", failed))
			}
			if key, err = signature.ParseKey(name, string(data)); err != nil {
				return nil, command.Usage(fmt.Errorf("--key: %s: %w", words.Clip(text), err))
			}
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func verifySignature(p *program, file string, keys []signature.Key) error {
	module, err := invoke.ReadModule(file)
	if err != nil {
		return err
	}
	sig, err := signature.Read(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	signer, err := signature.Check(module, sig, keys)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	comment := ""
	for line := range bytes.Lines(sig) {
		if text, ok := bytes.CutPrefix(line, []byte("trusted comment: ")); ok {
			comment = strings.TrimSpace(string(text))
		}
	}
	_, err = fmt.Fprintf(p.Out, "%s is signed by %s (%s)\n", file, signer, comment)
	return err
}
