package grpceffect

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"

	"edda/expression"
)

// binary ends the names of metadata whose values are bytes: a manifest writes
// and reads them in base64.
const binary = "-bin"

// outgoing is the metadata: map of a manifest.
func outgoing(config any) (metadata.MD, error) {
	given, isMap := config.(map[string]any)
	if !isMap && config != nil {
		return nil, errors.New("metadata is no map")
	}
	md := metadata.MD{}
	for name, v := range given {
		if err := add(md, strings.ToLower(name), v); err != nil {
			return nil, err
		}
	}
	return md, nil
}

// add adds a value, each item of a list, and nothing for null. The errors show
// no value: it may be a secret.
func add(md metadata.MD, name string, v any) error {
	if !allowedName(name) {
		return fmt.Errorf("metadata %q is a name that gRPC does not allow or keeps for itself", name)
	}
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		for _, item := range v {
			if err := add(md, name, item); err != nil {
				return err
			}
		}
		return nil
	}
	value, err := wire(name, expression.Text(v))
	if err == nil {
		md[name] = append(md[name], value)
	}
	return err
}

// wire is a value as grpc takes it.
func wire(name, v string) (string, error) {
	if strings.HasSuffix(name, binary) {
		raw, err := base64.StdEncoding.DecodeString(v)
		if err != nil {
			return "", fmt.Errorf("metadata %q is not in base64, as the names in -bin are", name)
		}
		return string(raw), nil
	}
	if !printable(v) {
		return "", fmt.Errorf("metadata %q has a value that is not printable ASCII", name)
	}
	return v, nil
}

func printable(v string) bool {
	return !strings.ContainsFunc(v, func(r rune) bool { return r < 0x20 || r > 0x7e })
}

// reserved are the names that HTTP/2 and gRPC use themselves; grpc would drop
// them without a word, or the other side would refuse the call.
func reserved() []string {
	return []string{"content-type", "content-length", "user-agent", "te", "host", "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}
}

func allowedName(name string) bool {
	legal := name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
	return legal && !strings.HasPrefix(name, "grpc-") && !slices.Contains(reserved(), name)
}

// statusDetails is the trailer whose content is in the body.
const statusDetails = "grpc-status-details-bin"

// incoming is what expressions see as headers.
func incoming(md metadata.MD) map[string]string {
	out := make(map[string]string, len(md))
	for name, values := range md {
		if name == statusDetails {
			continue
		}
		if strings.HasSuffix(name, binary) {
			values = encodeAll(values)
		}
		out[name] = strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
	}
	return out
}

func encodeAll(values []string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = base64.StdEncoding.EncodeToString([]byte(v))
	}
	return out
}
