import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { nameNetwork } from '../../display/format.ts'
import { href } from '../../display/routing.ts'
import { type Framework, writeSnippet } from '../../display/snippets.ts'
import type { Endpoint, EndpointList, Home, ProviderPayment, WalletList } from '../../gateway/answers.ts'
import { useSession } from '../../gateway/session.ts'
import { usePolled } from '../../gateway/usePolled.ts'
import { Form } from '../../parts/Form.tsx'
import { PaymentLink } from '../../parts/payments.tsx'
import { Choice, Code, Copyable, CopyButton } from '../../parts/ui.tsx'
import { View } from '../../parts/View.tsx'
import { endpointFields, walletFields } from '../setup/fields.ts'

/** Shows the steps that are missing until the first payment, and advances automatically. */
export function FirstSteps() {
  const { gateway, provider, path } = useSession()
  const polled = usePolled(async (signal) => {
    const [home, { wallets }, { endpoints }, payments] = await Promise.all([
      gateway.get<Home>('', signal),
      gateway.get<WalletList>(`${path}/wallets`, signal),
      gateway.get<EndpointList>(`${path}/endpoints`, signal),
      gateway.list<ProviderPayment>(`${path}/payments`, { limit: 1 }, { signal, pages: 1 }),
    ])
    return {
      home,
      wallets: wallets.filter(({ retiredAt }) => retiredAt === null),
      endpoint: endpoints.find(({ disabledAt }) => disabledAt === null),
      payment: payments.rows[0],
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
          <StepItem title="Register" state="done">
            <p>
              You are <Copyable text={provider.providerId} />
            </p>
          </StepItem>
          <StepItem title="Choose where the money goes" state={wallets.length > 0 ? 'done' : 'now'}>
            {wallets.map(({ walletId, address, network }) => (
              <p key={walletId}>
                <Copyable text={address} /> on {nameNetwork(network)}
              </p>
            ))}
            {wallets.length === 0 && (
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
            title="Set the price of a request"
            state={endpoint ? 'done' : wallets.length > 0 ? 'now' : 'ahead'}
          >
            {endpoint ? (
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
            title="Add the middleware to your server"
            state={payment ? 'done' : endpoint ? 'now' : 'ahead'}
          >
            {endpoint && <Middleware home={home} providerId={provider.providerId} endpoint={endpoint} />}
          </StepItem>
          <StepItem title="Get paid" state={payment ? 'done' : 'ahead'}>
            <div role="status">
              {payment ? (
                <p>
                  You received your first payment: <PaymentLink paymentId={payment.paymentId} />. It settles
                  automatically; <a href={href('payouts', 'queue')}>see the queue</a>.
                </p>
              ) : (
                endpoint && (
                  <p>
                    Waiting for the first payment. The response to an unpaid request is a 402 with your price:{' '}
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

const stateNames = { done: 'done', now: 'now', ahead: 'later' }

type StepItemProps = { title: string; state: keyof typeof stateNames; children?: ComponentChildren }

function StepItem({ title, state, children }: StepItemProps) {
  return (
    <li class={state} aria-current={state === 'now' ? 'step' : undefined}>
      <h2>
        {title}
        <span class="unseen">, {stateNames[state]}</span>
      </h2>
      {children}
    </li>
  )
}

const frameworks = [
  ['hono', 'Hono'],
  ['express', 'Express'],
] as const

/** Shows the code that sells an endpoint. */
export function Middleware(props: { home: Home; providerId: string; endpoint: Endpoint }) {
  const { home, providerId, endpoint } = props
  const [framework, setFramework] = useState<Framework>('hono')
  if (endpoint.url.startsWith(`${home.gatewayUrl}/p/${providerId}/`)) {
    return (
      <p>
        Nothing to install. The gateway forwards paid requests to{' '}
        <a href={href('developers', 'upstream')}>your server</a>.
      </p>
    )
  }
  const code = writeSnippet(framework, { gatewayUrl: home.gatewayUrl, providerId, endpoint })
  return (
    <>
      <p>
        This code sells the endpoint, with your API key in <code>TOLLKEEPER_API_KEY</code>. Or{' '}
        <a href={href('developers', 'upstream')}>sell without code</a>, through the gateway.
      </p>
      <div class="panel">
        <header>
          <Choice label="Framework" options={frameworks} value={framework} choose={setFramework} />
          <CopyButton text={code} label="Copy the code" />
        </header>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard must be able to scroll this */}
        <section class="scroll" tabIndex={0} aria-label="Middleware">
          <pre>{code}</pre>
        </section>
      </div>
    </>
  )
}
