package dial

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"edda/effects/spec"
	"edda/manifests"
)

// tlsFields lists the fields of a tls: map.
func tlsFields() []string { return []string{"ca", "cert", "key", "server_name"} }

// TLS reads a manifest's evaluated tls: map {ca, cert, key, server_name}, the first three in PEM.
// Without a map it returns the system's trust with TLS 1.2 or later. An empty field is an error,
// because the manifest did not ask for the system's trust.
func TLS(config any) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	given, err := tlsTexts(config)
	if err != nil {
		return nil, err
	}
	c.ServerName = given["server_name"]
	if ca := given["ca"]; ca != "" {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(ca)) {
			return nil, errors.New("tls.ca holds no certificate in PEM")
		}
	}
	if given["cert"] == "" && given["key"] == "" {
		return c, nil
	}
	pair, err := tls.X509KeyPair([]byte(given["cert"]), []byte(given["key"]))
	if err != nil {
		return nil, errors.New("tls.cert and tls.key are no pair in PEM") // the library's error may show the key
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// tlsTexts returns the fields of a tls: map.
func tlsTexts(config any) (map[string]string, error) {
	given, isMap := config.(map[string]any)
	if !isMap && config != nil {
		return nil, errors.New("tls is no map")
	}
	texts := make(map[string]string, len(given))
	for name, v := range given {
		text, _ := v.(string)
		if !slices.Contains(tlsFields(), name) || text == "" {
			return nil, fmt.Errorf("tls.%s is empty, or nothing that tls knows", name)
		}
		texts[name] = text
	}
	return texts, nil
}

// TLSKey identifies a configuration in caches of connections without showing it.
func TLSKey(config any) string {
	if config == nil {
		return "" // most calls
	}
	given, isMap := config.(map[string]any)
	digest := sha256.New()
	if !isMap {
		fmt.Fprintf(digest, "%T", config) // TLS refuses it
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		fmt.Fprintf(digest, "%q%q", name, given[name])
	}
	return hex.EncodeToString(digest.Sum(nil))
}

// TLSField describes a tls: map to the checker of manifests.
func TLSField() spec.Field {
	return spec.Field{Name: "tls", Type: spec.Map, Literal: true, Of: &spec.Fields{Name: "tls", Path: "tls.", Check: checkPair, Fields: []spec.Field{
		{Name: "ca", Check: checkPEM}, {Name: "cert", Check: checkPEM}, {Name: "key", Check: checkKey},
		{Name: "server_name", Type: spec.Text, Says: "the name in the other side's certificate"},
	}}}
}

func checkPair(c *spec.Checker, m *manifests.Value) {
	if (m.Field("cert") == nil) != (m.Field("key") == nil) {
		c.Errorf(m.Pos, "tls.cert and tls.key go together")
	}
}

// checkPEM refuses a literal that is no certificate.
func checkPEM(c *spec.Checker, f manifests.Field) {
	v := f.Value
	evaluated := v.Kind == manifests.Expression || v.Kind == manifests.Template
	if !evaluated && !x509.NewCertPool().AppendCertsFromPEM([]byte(v.Filled(""))) {
		c.Errorf(v.Pos, "tls.%s is a certificate in PEM, not the file it is in: write it here, or %s: =secret.NAME", f.Name, f.Name)
	}
}

func checkKey(c *spec.Checker, f manifests.Field) {
	if f.Value.Kind == manifests.Literal {
		c.Errorf(f.Value.Pos, "a private key is a secret: write key: =secret.NAME")
	}
}
