// Package helm tests the chart in deploy/helm: it renders it as helm does, decodes what comes out as the API
// server does with strict validation, and follows every name from where it is used to where it is defined. It is
// a module of its own, so that helm and Kubernetes' types are no dependencies of the daemons.
package helm
