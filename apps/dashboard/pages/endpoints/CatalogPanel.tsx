import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { useState } from 'preact/hooks'
import { countOf, writeUsdc } from '../../display/format.ts'
import { describeListing } from '../../display/listing.ts'
import type { Endpoint, EndpointCheck } from '../../gateway/answers.ts'
import { useSession } from '../../gateway/session.ts'
import { ActionButton } from '../../parts/ActionButton.tsx'
import { type Column, Table } from '../../parts/Table.tsx'
import { Badge, Facts, Panel, Time } from '../../parts/ui.tsx'

type Finding = EndpointCheck['findings'][number]

/** Shows whether buyers can find an endpoint, and if not, why. The provider can have its URL checked now. */
export function CatalogPanel({ endpoint, refresh }: { endpoint: Endpoint; refresh: () => void }) {
  const { gateway, path, scope } = useSession()
  const [findings, setFindings] = useState<Finding[]>()
  const { endpointId, pricing, proof, listing } = endpoint
  const { tone, title, text, advice } = describeListing(endpoint)
  async function check() {
    const id = encodeURIComponent(endpointId)
    const found = await gateway.post<EndpointCheck>(`${path}/endpoints/${id}/check`)
    setFindings(found.findings)
    refresh()
    const [errors, warnings] = (['error', 'warning'] as const).map(
      (severity) => found.findings.filter((one) => one.severity === severity).length,
    )
    if (errors === 0 && warnings === 0) return 'Checked: no problems found.'
    return `Checked: ${countOf(errors ?? 0, 'error')}, ${countOf(warnings ?? 0, 'warning')}.`
  }
  const askedPrice = proof?.asked_usdc ?? null
  const differs = askedPrice !== null && parseUsdc(askedPrice) !== parseUsdc(pricing.usdcPerUnit)
  return (
    <Panel
      title="In the catalog"
      label="In the catalog"
      beside={
        scope !== 'read' &&
        proof !== null && (
          <div class="line end">
            <ActionButton label="Check again" class="quiet" ask={check} />
          </div>
        )
      }
    >
      <p class="line">
        <Badge tone={tone}>{title}</Badge>
        {text !== null && <span>{text}</span>}
      </p>
      {advice !== null && <p class="note">{advice}</p>}
      {differs && (
        <p class="note">
          Its 402 asks for {writeUsdc(parseUsdc(askedPrice))} USDC, which the catalog shows. The registered
          price is {writeUsdc(parseUsdc(pricing.usdcPerUnit))} USDC.
        </p>
      )}
      {proof !== null && listing.status === 'listed' && (
        <Facts
          of={{
            'Last checked': <Time at={proof.checkedAt} none="never" />,
            'Next check': <Time at={proof.nextCheckAt} />,
          }}
        />
      )}
      {findings !== undefined && (
        <Table label="Findings" rows={findings} keyOf={(_, at) => at} columns={columns} />
      )}
    </Panel>
  )
}

const tones = { error: 'bad', warning: 'busy', ok: 'good' } as const

const columns: Column<Finding>[] = [
  [
    'Found',
    ({ severity, message, advice }) => (
      <>
        <Badge tone={tones[severity]}>{severity}</Badge> {message}
        {severity !== 'ok' && advice !== null && <p class="note">{advice}</p>}
      </>
    ),
    'wrap',
  ],
]
