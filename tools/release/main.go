// Command release makes the files of a release from a tree: archives, packages of
// Debian and of RPM, bills of materials, checksums, signatures, a Homebrew formula and
// the build file of an image. The same tree gives the same bytes, in whatever folder.
//
//	go run . -version v0.2.0 -out DIR
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

// Variables with the keys that sign; without a key there is no signature of its kind.
const (
	keyVariable      = "MINISIGN_KEY"      // the file of a private key of minisign
	passwordVariable = "MINISIGN_PASSWORD" // its password

	cosignVariable         = "COSIGN_KEY"      // the file of a private key of cosign
	cosignPasswordVariable = "COSIGN_PASSWORD" // its password
)

func main() {
	var o options
	targets := ""
	flag.StringVar(&o.tree, "tree", "../..", "`DIR` with the sources")
	flag.StringVar(&o.out, "out", "", "`DIR` for the files; it is emptied first")
	flag.StringVar(&o.version, "version", "", "`VERSION` of the release, such as v0.2.0")
	flag.StringVar(&targets, "targets", strings.Join(allTargets(), ","), "`LIST` of systems and processors")
	flag.Parse()
	o.targets = strings.Split(targets, ",")
	o.key, o.password = os.Getenv(keyVariable), os.Getenv(passwordVariable)
	o.cosign, o.cosignPassword = os.Getenv(cosignVariable), os.Getenv(cosignPasswordVariable)
	o.log = os.Stdout
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := release(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}
