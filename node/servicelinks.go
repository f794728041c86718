package node

import (
	"regexp"
	"strings"
)

// Kubernetes gives every container variables for each service of its namespace. A service
// edda or edda-nats makes EDDA_PORT=tcp://10.0.0.1:8700 and EDDA_NATS_SERVICE_HOST. Such
// variables are no settings. Docker's links have the same form.
var (
	serviceName  = regexp.MustCompile(`^[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR))$`)
	serviceURL   = regexp.MustCompile(`^[A-Z0-9_]+_PORT(_[0-9]+_(TCP|UDP|SCTP))?$`)
	serviceProto = regexp.MustCompile(`^(tcp|udp|sctp)://`)
)

// serviceLink tells whether a variable is a service link. A name that a user may also set,
// such as EDDA_PORT, counts only with the value of a link.
func serviceLink(name, value string) bool {
	return serviceName.MatchString(name) || serviceURL.MatchString(name) && serviceProto.MatchString(value)
}

// listeningHint explains a variable for a port or a host: the address is one setting.
func listeningHint(name string) string {
	if rest := strings.TrimPrefix(name, envPrefix); rest == "PORT" || rest == "HOST" {
		return "; the address to listen on is " + envName("addr") + ", such as " + DefaultAddr
	}
	return ""
}
