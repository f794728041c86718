package access

import (
	"crypto/sha256"
	"net/http"
	"strings"
)

// Secrets tells whose a secret is. It keeps only SHA-256 hashes: looking a hash up takes
// no time that reveals anything about a secret.
type Secrets[Owner any] map[[sha256.Size]byte]Owner

// Add notes the owner of a secret. The first owner stays.
func (s Secrets[Owner]) Add(secret string, owner Owner) {
	sum := sha256.Sum256([]byte(secret))
	if _, known := s[sum]; !known {
		s[sum] = owner
	}
}

// Owner finds whose the secret is.
func (s Secrets[Owner]) Owner(secret string) (Owner, bool) {
	owner, known := s[sha256.Sum256([]byte(secret))]
	return owner, known
}

// BearerToken returns the token in a request's Authorization header. The case of the
// scheme does not matter (RFC 9110).
func BearerToken(r *http.Request) (token string, ok bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}
