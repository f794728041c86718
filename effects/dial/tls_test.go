package dial

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"edda/effects/spec"
	"edda/manifests"
)

// pair is a certificate and its key, in PEM.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", encoded)
}

func TestTLS(t *testing.T) {
	cert, key := pair(t)
	_, other := pair(t)
	for _, tt := range []struct {
		name   string
		config any
		bad    string
	}{
		{"none", nil, ""},
		{"empty", map[string]any{}, ""},
		{"all", map[string]any{"ca": cert, "cert": cert, "key": key, "server_name": "pay"}, ""},
		{"a text", "ca", "tls is no map"},
		{"a path", map[string]any{"ca": "/etc/ca.pem"}, "tls.ca"},
		{"an empty ca is not the system's trust", map[string]any{"ca": ""}, "tls.ca is empty"},
		{"nor is null", map[string]any{"ca": nil}, "tls.ca is empty"},
		{"nor is a list", map[string]any{"ca": []any{cert}}, "tls.ca is empty"},
		{"no key", map[string]any{"cert": cert}, "no pair"},
		{"no certificate", map[string]any{"key": key}, "no pair"},
		{"another's key", map[string]any{"cert": cert, "key": other}, "no pair"},
		{"unknown", map[string]any{"insecure": "yes"}, "tls.insecure"},
	} {
		c, err := TLS(tt.config)
		if (err == nil) != (tt.bad == "") || err != nil && !strings.Contains(err.Error(), tt.bad) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.bad)
		}
		if err != nil && strings.Contains(err.Error(), "BEGIN") {
			t.Errorf("%s shows what it was given: %v", tt.name, err)
		}
		if err == nil && c.InsecureSkipVerify {
			t.Errorf("%s trusts everybody", tt.name)
		}
	}
	c, err := TLS(map[string]any{"ca": cert, "cert": cert, "key": key, "server_name": "pay"})
	if err != nil || c.ServerName != "pay" || c.RootCAs == nil || len(c.Certificates) != 1 {
		t.Errorf("config %+v %v", c, err)
	}
}

func TestTLSKeyTellsMapsApart(t *testing.T) {
	seen := map[string]bool{}
	for _, config := range []any{
		nil, "a text", map[string]any{"ca": nil}, map[string]any{"insecure": "a"}, map[string]any{"ca": "a"}, map[string]any{"cert": "a"}, map[string]any{"ca": "a", "cert": "b"}, map[string]any{"ca": `a"b`}, map[string]any{"key": "s3cret"},
	} {
		key := TLSKey(config)
		if seen[key] || strings.Contains(key, "s3cret") || key != TLSKey(config) {
			t.Errorf("%v has the key %s", config, key)
		}
		seen[key] = true
	}
}

func TestTLSField(t *testing.T) {
	cert, _ := pair(t)
	indented := strings.ReplaceAll("|\n"+strings.TrimSpace(cert), "\n", "\n      ")
	for _, tt := range []struct{ text, want string }{
		{"{}", ""},
		{"{ca: =secret.CA, cert: =secret.CERT, key: =secret.KEY, server_name: pay}", ""},
		{"\n    ca: " + indented, ""},
		{"{ca: '${secret.CA}'}", ""},
		{"system", "tls is a map of ca, cert, key, server_name"},
		{"{insecure: true}", "tls knows no insecure"},
		{"{ca: /etc/ca.pem}", "not the file it is in"},
		{"{ca: [a]}", "not the file it is in"},
		{"{cert: x, key: =secret.KEY}", "not the file it is in"},
		{"{cert: =secret.CERT, key: abc}", "write key: =secret.NAME"},
		{"{cert: =secret.CERT}", "go together"},
		{"{key: =secret.KEY}", "go together"},
		{"{server_name: 7}", "tls.server_name is the name"},
	} {
		f, problems := manifests.Parse("e.yaml", fmt.Appendf(nil, "effect: a\nhttp:\n  tls: %s\n", tt.text))
		if problems.Failed() {
			t.Fatalf("%s: %v", tt.text, problems)
		}
		c := spec.Checker{File: f}
		c.Field(TLSField(), f.Effects[0].Config.Fields[0])
		if got := fmt.Sprint(c.Problems); c.Problems.Failed() != (tt.want != "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %q", tt.text, got, tt.want)
		}
	}
}
