package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

// bundle is a signature as 'cosign verify-blob --bundle' reads it: Sigstore's bundle 0.3, of a key pair, and without
// a record in a transparency log, which would need a network.
type bundle struct {
	MediaType string   `json:"mediaType"`
	Material  material `json:"verificationMaterial"`
	Signature message  `json:"messageSignature"`
}

type material struct {
	PublicKey struct {
		Hint []byte `json:"hint"` // the SHA-256 of the public key, by which cosign tells keys apart
	} `json:"publicKey"`
}

type message struct {
	Digest struct {
		Algorithm string `json:"algorithm"`
		Digest    []byte `json:"digest"`
	} `json:"messageDigest"`
	Signature []byte `json:"signature"`
}

const bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"

// cosignKey reads a private key as 'cosign generate-key-pair' writes it; nil if there is none.
func (o options) cosignKey() (*ecdsa.PrivateKey, error) {
	if o.cosign == "" {
		return nil, nil
	}
	file, err := os.ReadFile(o.cosign)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(file)
	if block == nil || (block.Type != "ENCRYPTED SIGSTORE PRIVATE KEY" && block.Type != "ENCRYPTED COSIGN PRIVATE KEY") {
		return nil, fmt.Errorf("%s is not a private key of cosign: expected a file cosign.key of 'cosign generate-key-pair'", o.cosign)
	}
	der, err := encrypted.Decrypt(block.Bytes, []byte(o.cosignPassword))
	if err != nil {
		return nil, fmt.Errorf("%s: %w (%s has the password)", o.cosign, err, cosignPasswordVariable)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.cosign, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%s: found a key of another kind, expected ECDSA on P-256, as cosign makes it", o.cosign)
	}
	return key, nil
}

// cosigned is the bundle with the signature of a text. The same key and text give the same bytes.
func cosigned(key *ecdsa.PrivateKey, text []byte) ([]byte, error) {
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	hint, digest := sha256.Sum256(public), sha256.Sum256(text)
	b := bundle{MediaType: bundleType}
	b.Material.PublicKey.Hint = hint[:]
	b.Signature.Digest.Algorithm, b.Signature.Digest.Digest = "SHA2_256", digest[:]
	if b.Signature.Signature, err = key.Sign(nil, digest[:], crypto.SHA256); err != nil { // without a source of chance: RFC 6979
		return nil, err
	}
	if !ecdsa.VerifyASN1(&key.PublicKey, digest[:], b.Signature.Signature) {
		return nil, errors.New("the signature is not that of the key")
	}
	out, err := json.Marshal(b)
	return append(out, '\n'), err
}
