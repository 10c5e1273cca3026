import { whereItRuns } from '@tollkeeper/runtime/ownCommand'
import {
  readOffer,
  writeBuyCode,
  writeBuyCommand,
  writeMcpConfig,
  writeToolHint,
} from '../../display/buying.ts'
import { nameNetwork, writeCount, writeUsdc } from '../../display/format.ts'
import { href } from '../../display/routing.ts'
import type { DiscoveryResource, Home } from '../../gateway/answers.ts'
import { createGateway, GatewayError, query } from '../../gateway/gateway.ts'
import { usePolled } from '../../gateway/usePolled.ts'
import { Code, Copyable, CopyButton, Facts, Panel, State, Time } from '../../parts/ui.tsx'
import { View } from '../../parts/View.tsx'

const gateway = createGateway()
const everyMs = 30_000
const pageSize = 100
/** Maximum number of a seller's listings that are searched. */
const mostLookedAt = 1_000

type Sold = { resources: DiscoveryResource[]; pagination: { total: number } }

/** Shows anyone one listing, and how to buy it. */
export function ListingPage({ seller, resource }: { seller: string; resource: string }) {
  const polled = usePolled(
    async (signal) => {
      const [home, listing] = await Promise.all([
        gateway.get<Home>('', signal),
        findListing(seller, resource, signal),
      ])
      return { home, listing }
    },
    `listing ${seller} ${resource}`,
    everyMs,
  )
  return (
    <View title="Listing" polled={polled}>
      {({ home, listing }) => <Listing listing={listing} gatewayUrl={home.gatewayUrl} />}
    </View>
  )
}

/** @throws {GatewayError} 404 if the seller has no such listing, or removed it */
async function findListing(seller: string, resource: string, signal: AbortSignal) {
  for (let offset = 0; offset < mostLookedAt; offset += pageSize) {
    const asked = query({ payTo: seller, limit: pageSize, offset })
    const { resources, pagination } = await gateway.get<Sold>(`discovery/merchant${asked}`, signal)
    const found = resources.find((one) => one.resource === resource)
    if (found !== undefined) return found
    if (offset + pageSize >= pagination.total) break
  }
  throw new GatewayError(404, 'not_found', 'This seller has no such listing, or removed it.')
}

function Listing({ listing, gatewayUrl }: { listing: DiscoveryResource; gatewayUrl: string }) {
  const offer = readOffer(listing)
  const { quality, description, serviceName, lastUpdated, mimeType } = listing
  const options = { gatewayUrl, offer }
  const command = writeBuyCommand(options)
  const code = writeBuyCode(options)
  const { info } = listing.extensions.bazaar as {
    info?: { input?: { description?: string }; output?: unknown }
  }
  return (
    <>
      <div class="line">
        <p>
          <span class="value">{writeUsdc(offer.price)}</span>{' '}
          <small>USDC a {offer.isTool ? 'call' : 'request'}</small>
        </p>
        <State isOn={quality.proven} yes="origin proven" no="origin not proven" />
      </div>
      <Facts
        isPanel
        of={{
          [offer.isTool ? 'Tool' : 'Request']: <Code>{`${offer.method} ${offer.resource}`}</Code>,
          'MCP server':
            offer.isTool && (offer.serverUrl ? <Copyable text={offer.serverUrl} whole /> : 'not registered'),
          Service: serviceName,
          Description: description !== '' && description,
          'Paid on': offer.networks.map(nameNetwork).join(', '),
          Money: offer.isTest && 'Testnet funds, no real value',
          'Paid to': <Copyable text={offer.seller} />,
          'Content type': mimeType,
          'Payments, 30 days': writeCount(quality.l30DaysTotalCalls),
          'Buyers, 30 days': writeCount(quality.l30DaysUniquePayers),
          'Failed, 30 days': quality.l30DaysFailedCalls > 0 && writeCount(quality.l30DaysFailedCalls),
          'Last settled': <Time at={quality.lastCalledAt} distance />,
          'Reason not proven': quality.finding,
          Updated: <Time at={lastUpdated} />,
        }}
      />
      {offer.isPattern && (
        <p class="box busy">
          Replace the parts of the URL that begin with a colon, and the *, with your own values.
        </p>
      )}
      {command && (
        <Lines title="Buy on the command line" text={command}>
          Runs {whereItRuns}. It pays at most twice the price.
        </Lines>
      )}
      {code && <Lines title="Buy with the SDK" text={code} />}
      <Lines title="Let an agent buy" text={writeMcpConfig(options)}>
        {offer.isTool
          ? writeToolHint(offer)
          : 'Add this to the file in which your MCP host keeps its servers. The agent can’t spend more than the limits in it.'}
      </Lines>
      {info?.input && (
        <Panel title="How to call it">
          <details>
            <summary>Input and output</summary>
            <pre class="scroll">{JSON.stringify(info, null, 2)}</pre>
          </details>
        </Panel>
      )}
      <p>
        <a href={href('market')}>All listings</a>
      </p>
    </>
  )
}

function Lines({
  title,
  text,
  children,
}: {
  title: string
  text: string
  children?: preact.ComponentChildren
}) {
  return (
    <Panel title={title} beside={<CopyButton text={text} label={`Copy: ${title}`} />}>
      {children && <p class="note">{children}</p>}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard must be able to scroll this */}
      <section class="scroll" tabIndex={0} aria-label={title}>
        <pre>{text}</pre>
      </section>
    </Panel>
  )
}
