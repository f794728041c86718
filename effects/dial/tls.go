package dial

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"edda/manifests"
)

// tlsFields are what a manifest may say in tls: each but insecure is a text in PEM,
// or a name; private keys come from secrets.
func tlsFields() []string { return []string{"ca", "cert", "key", "server_name"} }

// TLS reads the evaluated tls: map of a manifest: {ca, cert, key, server_name},
// the first three in PEM. Without a map it is the system's trust, TLS 1.2 or later.
func TLS(config any) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	given, isMap := config.(map[string]any)
	if !isMap && config != nil {
		return nil, errors.New("tls is no map")
	}
	text := func(name string) string { s, _ := given[name].(string); return s }
	c.ServerName = text("server_name")
	if ca := text("ca"); ca != "" {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(ca)) {
			return nil, errors.New("tls.ca holds no certificate in PEM")
		}
	}
	if text("cert") == "" && text("key") == "" {
		return c, nil
	}
	pair, err := tls.X509KeyPair([]byte(text("cert")), []byte(text("key")))
	if err != nil {
		return nil, errors.New("tls.cert and tls.key are no pair in PEM") // the library's error may show them
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// TLSKey tells configurations of TLS apart, for caches of connections.
func TLSKey(config any) string {
	given, _ := config.(map[string]any)
	var b strings.Builder
	for _, name := range tlsFields() {
		fmt.Fprintf(&b, "%q", given[name])
	}
	return b.String()
}

// CheckTLS tells what is wrong with a tls: map before anything runs.
func CheckTLS(file *manifests.File, v *manifests.Value) (out manifests.Problems) {
	problem := func(pos manifests.Pos, message string) {
		out = append(out, manifests.Problem{File: file, Pos: pos, Message: message})
	}
	if v == nil {
		return nil
	}
	if v.Kind != manifests.Map {
		problem(v.Pos, "tls is a map of "+strings.Join(tlsFields(), ", "))
		return out
	}
	for _, f := range v.Fields {
		if !slices.Contains(tlsFields(), f.Name) {
			problem(f.Pos, "tls knows no "+f.Name+"; it knows "+strings.Join(tlsFields(), ", "))
		}
		if f.Name == "key" && f.Value.Kind == manifests.Literal {
			problem(f.Value.Pos, "a private key is a secret: write key: =secret.NAME")
		}
	}
	if (v.Field("cert") == nil) != (v.Field("key") == nil) {
		problem(v.Pos, "tls.cert and tls.key go together")
	}
	return out
}
