/** Lints OpenAPI documents with Redocly's and Spectral's default rules. `node lint.js URL…` prints the problems as JSON. */
import { createConfig, lintFromString } from '@redocly/openapi-core'
import spectralCore from '@stoplight/spectral-core'
import parsers from '@stoplight/spectral-parsers'
import rulesets from '@stoplight/spectral-rulesets'

const spectral = new spectralCore.Spectral()
spectral.setRuleset({ extends: [rulesets.oas] })
const config = await createConfig({ extends: ['recommended'] })

const found = []
for (const url of process.argv.slice(2)) {
  const response = await fetch(url)
  if (!response.ok) throw new Error(`${url} answered ${response.status}`)
  const source = await response.text()
  for (const { ruleId, severity, message, location } of await lintFromString({
    source,
    absoluteRef: 'openapi.json',
    config,
  }))
    found.push({ url, by: 'redocly', severity, rule: ruleId, message, at: location[0]?.pointer })
  const document = new spectralCore.Document(source, parsers.Json, 'openapi.json')
  for (const { code, severity, message, path } of await spectral.run(document))
    found.push({
      url,
      by: 'spectral',
      severity: severity === 0 ? 'error' : 'warn',
      rule: code,
      message,
      at: path.join('/'),
    })
}
console.log(JSON.stringify(found, null, 2))
