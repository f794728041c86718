package hero

import (
	"path"
	"slices"
	"strings"
)

// Masked stands where the value of a secret variable was.
const Masked = "***"

// SecretNames are the patterns of the names of variables that hold secrets unless
// told otherwise, where * stands for anything and case does not matter.
func SecretNames() []string {
	return []string{"*SECRET*", "*PASSWORD*", "*PASSWD*", "*TOKEN*", "*API_KEY*", "*APIKEY*", "*PRIVATE_KEY*", "*CREDENTIAL*"}
}

// IsSecret tells whether one of the patterns is the name's.
func IsSecret(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(strings.ToUpper(p), strings.ToUpper(name))
		return ok
	})
}

// MaskSecrets is the variables with the values of the secret ones masked. It
// leaves its argument as it is.
func MaskSecrets(patterns []string, vars map[string]string) map[string]string {
	if vars == nil {
		return nil
	}
	out := make(map[string]string, len(vars))
	for name, value := range vars {
		if IsSecret(patterns, name) {
			value = Masked
		}
		out[name] = value
	}
	return out
}
