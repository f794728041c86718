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

// binary is the suffix of metadata names whose values are bytes. Manifests have them in base64.
const binary = "-bin"

// outgoing reads the map metadata of a manifest.
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

// add adds a value: each item of a list, and nothing for null. Errors show no value, which may be a
// secret.
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

// wire converts a value for grpc.
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

// reserved lists the names that HTTP/2 and gRPC use. grpc would drop them silently, or the server
// would refuse the call.
func reserved() []string {
	return []string{"content-type", "content-length", "user-agent", "te", "host", "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}
}

func allowedName(name string) bool {
	legal := name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
	return legal && !strings.HasPrefix(name, "grpc-") && !slices.Contains(reserved(), name)
}

// statusDetails is the trailer that is shown in the body instead.
const statusDetails = "grpc-status-details-bin"

// incoming returns the metadata of an answer as headers for expressions.
func incoming(md metadata.MD) map[string]string {
	out := make(map[string]string, len(md))
	for name, values := range md {
		if name == statusDetails {
			continue
		}
		if strings.HasSuffix(name, binary) {
			values = slices.Clone(values)
			for i, v := range values {
				values[i] = base64.StdEncoding.EncodeToString([]byte(v))
			}
		}
		out[name] = strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
	}
	return out
}
