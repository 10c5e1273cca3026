// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {IFiatToken} from "./support/IFiatToken.sol";
import {SettlementTest} from "./support/SettlementTest.sol";
import {Vm} from "./support/Vm.sol";

/// @notice The books balance after any sequence of actions by buyers, keepers and strangers.
contract InvariantsTest is SettlementTest {
    Market private _market;

    function setUp() public override {
        super.setUp();
        _market = new Market();
        _market.setUp();
    }

    /// Names the contract whose functions the test runner calls at random.
    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(_market);
    }

    function invariant_theContractHoldsNothing() public view {
        address contract_ = _market.settlementAddress();
        IFiatToken token = _market.token();
        vm.assertEq(token.balanceOf(contract_), 0, "its balance");
        vm.assertEq(contract_.balance, 0, "its ether");
        for (uint256 i; i < _market.BUYERS(); ++i) {
            vm.assertEq(token.allowance(_market.buyer(i), contract_), 0, "an allowance");
        }
    }

    function invariant_onlySignedRecipientsReceive() public view {
        IFiatToken token = _market.token();
        vm.assertEq(token.balanceOf(PROVIDER), 1 + _market.paidToProvider(), "the provider's balance");
        vm.assertEq(token.balanceOf(PLATFORM), 1 + _market.paidToPlatform(), "the platform's balance");
        uint256 buyers;
        for (uint256 i; i < _market.BUYERS(); ++i) buyers += token.balanceOf(_market.buyer(i));
        uint256 all = buyers + token.balanceOf(PROVIDER) + token.balanceOf(PLATFORM);
        vm.assertEq(all, token.totalSupply(), "no other account has any");
    }

    function invariant_eventsShowWhatTheTokenMoved() public view {
        vm.assertEq(_market.transferred(), _market.eventTotals(), "Transfers against BatchSettled");
    }

    function invariant_nothingMovesTwice() public view {
        vm.assertEq(_market.settledTwice(), 0, "authorizations that moved money twice");
    }
}

/// @notice The steps that can happen to a few payments. The runner calls them in random order.
contract Market is SettlementTest {
    uint256 public constant BUYERS = 4;
    uint256 private constant PAYMENTS = 12;

    uint256 public paidToProvider;
    uint256 public paidToPlatform;
    uint256 public transferred;
    uint256 public eventTotals;
    uint256 public settledTwice;
    mapping(bytes32 nonce => uint256) private _moves;

    /// The runner calls every public function, including this one, so only the first call has an effect.
    function setUp() public override {
        if (address(usdc) == address(0)) super.setUp();
    }

    function settlementAddress() external view returns (address) {
        return address(settlement);
    }

    function token() external view returns (IFiatToken) {
        return usdc;
    }

    function buyer(uint256 index) external pure returns (address) {
        return _buyer(index);
    }

    function _payment(uint256 index) private pure returns (Terms memory terms) {
        terms = _terms(index % BUYERS);
        terms.nonce = keccak256(abi.encode("payment", index % PAYMENTS));
        if (index % 3 == 0) terms.fee = 0;
        if (index % 5 == 0) terms.feeNonce = keccak256(abi.encode("fee", index % PAYMENTS));
    }

    function fund(uint256 index, uint32 amount) external {
        // A blacklisted buyer can't be funded.
        try usdc.mint(_buyer(index % BUYERS), 1 + uint256(amount) % 200_000) {} catch {}
    }

    function settle(uint256 first, uint256 count, bool byStranger) external {
        count = 1 + count % 6;
        IBatchSettlement.Payment[] memory payments = new IBatchSettlement.Payment[](count);
        for (uint256 i; i < count; ++i) payments[i] = _pack(_payment((first % PAYMENTS) + i));
        vm.recordLogs();
        if (byStranger) vm.prank(address(0x5747));
        try settlement.settle(_batch(), payees, payments, new bytes[](0)) {
            _record(vm.getRecordedLogs());
        } catch (bytes memory reason) {
            vm.assertEq(bytes4(reason), IBatchSettlement.NothingSettled.selector, "why a batch reverted");
        }
    }

    function submitHalf(uint256 index, bool fee) external {
        Terms memory terms = _payment(index);
        Half memory half = fee ? _fee(terms) : _provider(terms);
        bytes memory signature = _sign(terms, half);
        vm.recordLogs();
        try usdc.transferWithAuthorization(
            terms.from, half.to, half.value, terms.validAfter, terms.validBefore, half.nonce, signature
        ) {
            _record(vm.getRecordedLogs());
            // No batch logs this authorization.
            eventTotals += half.value;
        } catch {}
    }

    function cancel(uint256 index, bool fee) external {
        Terms memory terms = _payment(index);
        bytes32 nonce = fee ? _fee(terms).nonce : terms.nonce;
        if (!usdc.authorizationState(terms.from, nonce)) _cancel(terms, nonce);
    }

    function toggleBlacklist(uint256 index, bool blacklisted) external {
        if (blacklisted) usdc.blacklist(_buyer(index % BUYERS));
        else usdc.unBlacklist(_buyer(index % BUYERS));
    }

    /// The recorded logs include those of calls that failed inside the batch. The invariants check each Transfer
    /// against the balances. Each AuthorizationUsed is directly followed by its Transfer.
    function _record(Vm.Log[] memory logs) private {
        for (uint256 i; i < logs.length; ++i) {
            bytes32 topic = logs[i].topics[0];
            if (topic == IFiatToken.AuthorizationUsed.selector) {
                bool moved = i + 1 < logs.length && logs[i + 1].topics[0] == IFiatToken.Transfer.selector;
                if (moved && ++_moves[logs[i].topics[2]] > 1) ++settledTwice;
            } else if (topic == IFiatToken.Transfer.selector) {
                uint256 value = abi.decode(logs[i].data, (uint256));
                transferred += value;
                address to = address(uint160(uint256(logs[i].topics[2])));
                if (to == PROVIDER) paidToProvider += value;
                if (to == PLATFORM) paidToPlatform += value;
            } else if (topic == IBatchSettlement.BatchSettled.selector) {
                (,, uint256 providerTotal, uint256 feeTotal,) =
                    abi.decode(logs[i].data, (uint8, uint256, uint256, uint256, bytes));
                eventTotals += providerTotal + feeTotal;
            }
        }
    }
}
