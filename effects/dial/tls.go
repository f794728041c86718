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
	"strings"

	"edda/manifests"
)

// tlsFields are what a manifest may say in tls: texts in PEM, and a name;
// private keys come from secrets.
func tlsFields() []string { return []string{"ca", "cert", "key", "server_name"} }

// TLS reads the evaluated tls: map of a manifest: {ca, cert, key, server_name},
// the first three in PEM. Without a map it is the system's trust, TLS 1.2 or
// later. A field that is there and empty is an error: the system's trust is not
// what was asked for.
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
		return nil, errors.New("tls.cert and tls.key are no pair in PEM") // the library's error may show them
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// tlsTexts are the fields of a tls: map, each a text.
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

// TLSKey tells configurations of TLS apart, for caches of connections, and
// shows none.
func TLSKey(config any) string {
	if config == nil {
		return "" // of most calls
	}
	given, isMap := config.(map[string]any)
	digest := sha256.New()
	if !isMap {
		fmt.Fprintf(digest, "%T", config) // which TLS refuses
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		fmt.Fprintf(digest, "%q%q", name, given[name])
	}
	return hex.EncodeToString(digest.Sum(nil))
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
		if f.Name == "server_name" && f.Value.Kind == manifests.Literal && !isText(f.Value) {
			problem(f.Value.Pos, "tls.server_name is the name in the other side's certificate")
		}
		if (f.Name == "ca" || f.Name == "cert") && !mayBePEM(f.Value) {
			problem(f.Value.Pos, "tls."+f.Name+" is a certificate in PEM, not the file it is in: write it here, or "+f.Name+": =secret.NAME")
		}
	}
	if (v.Field("cert") == nil) != (v.Field("key") == nil) {
		problem(v.Pos, "tls.cert and tls.key go together")
	}
	return out
}

func isText(v *manifests.Value) bool {
	text, _ := v.Scalar.(string)
	return text != ""
}

// mayBePEM tells whether a value is a certificate as far as it is known.
func mayBePEM(v *manifests.Value) bool {
	if v.Kind != manifests.Literal {
		return v.Kind == manifests.Expression || v.Kind == manifests.Template
	}
	text, _ := v.Scalar.(string)
	return x509.NewCertPool().AppendCertsFromPEM([]byte(text))
}
