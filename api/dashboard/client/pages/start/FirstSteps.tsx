import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import type { Endpoint, EndpointList, Home, ProviderPayments, WalletList } from '../../answers.ts'
import { nameNetwork } from '../../format.ts'
import { query } from '../../gateway.ts'
import { Code, Copyable, CopyButton, PaymentLink } from '../../parts/bits.tsx'
import { Choice } from '../../parts/Choice.tsx'
import { Form } from '../../parts/Form.tsx'
import { View } from '../../parts/View.tsx'
import { href } from '../../routing.ts'
import { useSession } from '../../session.ts'
import { type Framework, writeSnippet } from '../../snippets.ts'
import { usePolled } from '../../usePolled.ts'
import { endpointFields, walletFields } from '../setup/fields.ts'

/** Shows what is still missing until somebody pays, and goes on by itself. */
export function FirstSteps() {
  const { gateway, provider, path } = useSession()
  const polled = usePolled(async (signal) => {
    const [home, { wallets }, { endpoints }, { payments }] = await Promise.all([
      gateway.get<Home>('', signal),
      gateway.get<WalletList>(`${path}/wallets`, signal),
      gateway.get<EndpointList>(`${path}/endpoints`, signal),
      gateway.get<ProviderPayments>(`${path}/payments${query({ limit: 1 })}`, signal),
    ])
    return {
      home,
      wallets: wallets.filter(({ retiredAt }) => retiredAt === null),
      endpoint: endpoints.find(({ disabledAt }) => disabledAt === null),
      payment: payments[0],
    }
  }, 'start')
  const save = async (what: 'wallets' | 'endpoints', body: object) => {
    await gateway.post(`${path}/${what}`, body)
    polled.refresh()
  }
  return (
    <View title="First steps" polled={polled}>
      {({ home, wallets, endpoint, payment }) => (
        <ol class="timeline steps">
          <StepItem title="Register" isDone>
            <p>
              You are <Copyable text={provider.providerId} />
            </p>
          </StepItem>
          <StepItem title="Say where the money goes" isDone={wallets.length > 0} isNow={wallets.length === 0}>
            {wallets.length > 0 ? (
              wallets.map(({ walletId, address, network }) => (
                <p key={walletId}>
                  <Copyable text={address} /> on {nameNetwork(network)}
                </p>
              ))
            ) : (
              <div class="panel">
                <Form
                  fields={walletFields(home)}
                  action="Register the wallet"
                  send={(body) => save('wallets', body)}
                />
              </div>
            )}
          </StepItem>
          <StepItem
            title="Say what a request costs"
            isDone={endpoint !== undefined}
            isNow={wallets.length > 0 && endpoint === undefined}
          >
            {endpoint !== undefined ? (
              <p>
                <Code>{`${endpoint.method === '*' ? 'any' : endpoint.method} ${endpoint.url}`}</Code>
              </p>
            ) : (
              wallets.length > 0 && (
                <div class="panel">
                  <Form
                    fields={endpointFields(wallets)}
                    action="Add the endpoint"
                    send={(body) => save('endpoints', body)}
                  />
                </div>
              )
            )}
          </StepItem>
          <StepItem
            title="Put the middleware in front of it"
            isDone={payment !== undefined}
            isNow={endpoint !== undefined && payment === undefined}
          >
            {endpoint && <Middleware home={home} providerId={provider.providerId} endpoint={endpoint} />}
          </StepItem>
          <StepItem title="Get paid" isDone={payment !== undefined}>
            <div role="status">
              {payment !== undefined ? (
                <p>
                  Your first payment is here: <PaymentLink paymentId={payment.paymentId} />. It settles by
                  itself; <a href={href('queue')}>see the queue</a>.
                </p>
              ) : (
                endpoint && (
                  <p>
                    Waiting for the first payment. An unpaid request is answered with 402 and your price:{' '}
                    <code class="break">
                      curl -i{['GET', '*'].includes(endpoint.method) ? '' : ` -X ${endpoint.method}`}{' '}
                      {endpoint.url}
                    </code>
                  </p>
                )
              )}
            </div>
          </StepItem>
        </ol>
      )}
    </View>
  )
}

function StepItem(props: { title: string; isDone?: boolean; isNow?: boolean; children?: ComponentChildren }) {
  const { title, isDone = false, isNow = false, children } = props
  return (
    <li class={isDone ? 'done' : isNow ? 'now' : 'ahead'} aria-current={isNow ? 'step' : undefined}>
      <h2>
        {title}
        <span class="unseen">{isDone ? ', done' : isNow ? ', now' : ', later'}</span>
      </h2>
      {children}
    </li>
  )
}

const frameworks = [
  ['hono', 'Hono'],
  ['express', 'Express'],
] as const

function Middleware(props: { home: Home; providerId: string; endpoint: Endpoint }) {
  const { home, providerId, endpoint } = props
  const [framework, setFramework] = useState<Framework>('hono')
  if (endpoint.url.startsWith(`${home.gatewayUrl}/p/${providerId}/`)) {
    return (
      <p>
        Nothing to install: the gateway passes it on to <a href={href('setup', 'upstream')}>your server</a>.
      </p>
    )
  }
  const code = writeSnippet(framework, { gatewayUrl: home.gatewayUrl, providerId, endpoint })
  return (
    <>
      <p>
        With your API key in <code>TOLLKEEPER_API_KEY</code>, this sells it. Or{' '}
        <a href={href('setup', 'upstream')}>sell without code</a>, through the gateway.
      </p>
      <div class="panel">
        <header>
          <Choice label="Framework" options={frameworks} value={framework} choose={setFramework} />
          <CopyButton text={code} label="Copy the code" />
        </header>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable */}
        <section class="scroll" tabIndex={0} aria-label="Middleware">
          <pre>{code}</pre>
        </section>
      </div>
    </>
  )
}
