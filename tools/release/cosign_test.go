package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

// newCosignKey writes a private key as cosign does, with the password "secret".
func newCosignKey(t *testing.T, curve elliptic.Curve) (file string, public *ecdsa.PublicKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := encrypted.Encrypt(der, []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "cosign.key")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED SIGSTORE PRIVATE KEY", Bytes: sealed}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, &key.PublicKey
}

// checkBundle verifies the signature of a text as cosign does by a key.
func checkBundle(t *testing.T, public *ecdsa.PublicKey, text, file []byte) {
	t.Helper()
	var b bundle
	if err := json.Unmarshal(file, &b); err != nil {
		t.Fatalf("%v in %s", err, file)
	}
	digest := sha256.Sum256(text)
	if b.MediaType != bundleType || b.Signature.Digest.Algorithm != "SHA2_256" || string(b.Signature.Digest.Digest) != string(digest[:]) || len(b.Material.PublicKey.Hint) != sha256.Size {
		t.Errorf("the bundle is %s", file)
	}
	if !ecdsa.VerifyASN1(public, digest[:], b.Signature.Signature) {
		t.Error("cosign's signature is not that of the checksums")
	}
}

// TestCosignKey: what is no key of cosign is refused before anything is made, and a signature is the same each time.
func TestCosignKey(t *testing.T) {
	t.Parallel()
	good, public := newCosignKey(t, elliptic.P256())
	other, _ := newCosignKey(t, elliptic.P384())
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{text: "is not a private key of cosign", text + ".missing": "no such file", other: "expected ECDSA on P-256", good: "COSIGN_PASSWORD has the password"} {
		password := "secret"
		if file == good {
			password = "wrong"
		}
		out := filepath.Join(t.TempDir(), "out")
		err := release(t.Context(), options{tree: "../..", out: out, version: "v0.2.0", targets: []string{"linux/amd64"}, cosign: file, cosignPassword: password, log: t.Output()})
		if err == nil || !strings.HasPrefix(err.Error(), "COSIGN_KEY: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if _, err := os.Stat(out); !os.IsNotExist(err) {
			t.Errorf("%s: files were made", want)
		}
	}
	key, err := options{cosign: good, cosignPassword: "secret"}.cosignKey()
	if err != nil {
		t.Fatal(err)
	}
	a, errA := cosigned(key, []byte("sums"))
	b, errB := cosigned(key, []byte("sums"))
	if errA != nil || errB != nil || string(a) != string(b) {
		t.Errorf("%v, %v: two signatures differ", errA, errB)
	}
	checkBundle(t, public, []byte("sums"), a)
}
