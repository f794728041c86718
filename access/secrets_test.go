package access

import (
	"net/http"
	"testing"
)

func TestASecretHasOneOwner(t *testing.T) {
	s := SecretHashes[string]{}
	s.Add("one", "ann")
	s.Add("one", "ben")
	s.Add("two", "ben")
	for secret, want := range map[string]string{"one": "ann", "two": "ben", "": "", "ONE": "", "one ": ""} {
		if owner, ok := s.Owner(secret); owner != want || ok != (want != "") {
			t.Errorf("%q is %q's %t", secret, owner, ok)
		}
	}
}

func TestABearerTokenIsReadFromTheHeader(t *testing.T) {
	for header, want := range map[string]string{"Bearer x": "x", "bEARER  x ": "x", "Basic x": "", "Bearer": "", "": ""} {
		token, ok := BearerToken(&http.Request{Header: http.Header{"Authorization": {header}}})
		if ok != (want != "") || ok && token != want {
			t.Errorf("%q is %q %t", header, token, ok)
		}
	}
}
