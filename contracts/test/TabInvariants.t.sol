// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {ITabSettlement} from "../interfaces/ITabSettlement.sol";
import {IFiatToken} from "./support/IFiatToken.sol";
import {TabTest} from "./support/TabTest.sol";
import {Vm} from "./support/Vm.sol";

/// @notice The payouts match what was signed, after any sequence of actions by payers, keepers, strangers and the
/// token's issuer.
contract TabInvariantsTest is TabTest {
    TabMarket private _market;

    function setUp() public override {
        super.setUp();
        _market = new TabMarket();
        _market.setUp();
    }

    /// Names the contract whose functions the test runner calls at random.
    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(_market);
    }

    function invariant_theContractHoldsNothing() public view {
        (IFiatToken token, address contract_) = _market.contracts();
        vm.assertEq(token.balanceOf(contract_), 0, "its balance");
        vm.assertEq(contract_.balance, 0, "its ether");
    }

    /// For each line of each settled state, the account has received its part, either directly or in a splitter that
    /// pays only this account.
    function invariant_eachIsPaidWhatSettled() public view {
        for (uint256 i; i < _market.ACCOUNTS(); ++i) {
            (uint256 paid, uint256 due) = _market.account(i);
            vm.assertEq(paid, due, "what an account received");
        }
    }

    function invariant_sumInIsSumOut() public view {
        vm.assertEq(_market.pulled(), _market.paidOut(), "Transfers to the contract against those from it");
        vm.assertEq(_market.pulled(), _market.eventTotals(), "Transfers to the contract against BatchSettled");
    }

    /// At most one state per nonce moves, and it moves exactly what the payer signed.
    function invariant_payersPayOneStatePerNonce() public view {
        vm.assertEq(_market.movedTwice(), 0, "nonces that moved twice");
        for (uint256 i; i < _market.PAYERS(); ++i) {
            (uint256 paid, uint256 signed) = _market.payer(i);
            vm.assertEq(paid, signed, "what a payer paid, against the states that moved");
        }
    }
}

/// @notice The steps that can happen to a few tabs. The runner calls them in random order.
contract TabMarket is TabTest {
    uint256 public constant PAYERS = 4;
    uint256 public constant ACCOUNTS = 4;
    uint256 private constant TABS = 10;

    uint256 public pulled;
    uint256 public paidOut;
    uint256 public eventTotals;
    uint256 public movedTwice;
    mapping(bytes32 nonce => bool) private _moved;
    mapping(address account => uint256) private _due;
    uint256[PAYERS] private _funds;
    uint256[PAYERS] private _signed;

    /// The runner calls every public function, including this one, so only the first call has an effect.
    function setUp() public override {
        if (address(usdc) != address(0)) return;
        super.setUp();
        splits.push(_split(OTHER, 1, 3));
    }

    function contracts() external view returns (IFiatToken, address) {
        return (usdc, address(tabSettlement));
    }

    function _account(uint256 index) private pure returns (address) {
        return [PROVIDER, OTHER, PLATFORM, KEEPER][index];
    }

    function account(uint256 index) external view returns (uint256 paid, uint256 due) {
        address account_ = _account(index);
        address refuge = _refuge(account_);
        uint256 waiting = usdc.balanceOf(refuge) + usdc.balanceOf(_refuge(refuge));
        return (usdc.balanceOf(account_) - 1 + waiting, _due[account_]);
    }

    function payer(uint256 index) external view returns (uint256 paid, uint256 signed) {
        return (_funds[index] - usdc.balanceOf(_buyer(index)), _signed[index]);
    }

    /// Returns a state of one of the tabs. Each tab has several states, and a later state may be cheaper than an
    /// earlier one.
    function _state(uint256 tab, uint256 sequence) private pure returns (Bill memory bill) {
        bill = _bill(tab % PAYERS);
        bill.nonce = keccak256(abi.encode("tab", tab));
        bill.sequence = sequence;
        bill.lines = new Line[](1 + sequence % 3);
        for (uint256 i; i < bill.lines.length; ++i) {
            bill.lines[i] = Line((tab + i) % 3, 1 + uint256(keccak256(abi.encode(tab, sequence, i))) % 1_000);
        }
    }

    function fund(uint256 index, uint16 amount) external {
        index %= PAYERS;
        // A blacklisted payer can't be funded.
        try usdc.mint(_buyer(index), 1 + uint256(amount)) {
            _funds[index] += 1 + uint256(amount);
        } catch {}
    }

    /// Settles with any gas limit. The batch may be sorted by payer or not.
    function settle(uint256[4] calldata picks, uint256 count, uint32 gasLimit) external {
        Bill[] memory bills = new Bill[](1 + count % 4);
        for (uint256 i; i < bills.length; ++i) bills[i] = _state(picks[i] % TABS, picks[i] / TABS % 4);
        bytes memory data = _call(_packTabs(bills));
        vm.recordLogs();
        vm.prank(KEEPER);
        (bool success, bytes memory answer) = address(tabSettlement).call{gas: 450_000 + uint256(gasLimit) % 1_000_000}(data);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        if (!success) {
            bool isExpected = answer.length == 0 || bytes4(answer) == IBatchSettlement.NothingSettled.selector;
            bool isRefused = bytes4(answer) == ITabSettlement.PayeeRefused.selector;
            vm.assertTrue(isExpected || isRefused && _hasNoRefuge(), "why a batch reverted");
            return;
        }
        _record(logs);
        _model(bills, abi.decode(answer, (bytes)));
    }

    function cancel(uint256 tab) external {
        Bill memory bill = _state(tab % TABS, 0);
        if (!usdc.authorizationState(bill.from, bill.nonce)) _cancel(bill);
    }

    function toggleBlacklist(uint256 index, bool blacklisted) external {
        index %= PAYERS + ACCOUNTS;
        address target = index < PAYERS ? _buyer(index) : _account(index - PAYERS);
        if (blacklisted) usdc.blacklist(target);
        else usdc.unBlacklist(target);
    }

    /// Blacklists a splitter in a few of the calls. Every other call takes all splitters off the blacklist.
    function toggleRefuge(uint256 index, bool blacklisted) external {
        address refuge = _refuge(_account(index / 8 % ACCOUNTS));
        if (blacklisted && index % 8 == 0) {
            usdc.blacklist(refuge);
            return;
        }
        if (blacklisted && index % 8 == 1) {
            usdc.blacklist(_refuge(refuge));
            return;
        }
        for (uint256 i; i < ACCOUNTS; ++i) {
            usdc.unBlacklist(_refuge(_account(i)));
            usdc.unBlacklist(_refuge(_refuge(_account(i))));
        }
    }

    function sweepRefuge(uint256 index) external {
        address target = _account(index / 2 % ACCOUNTS);
        if (index % 2 == 1) target = _refuge(target);
        factory.sweep(address(usdc), target, _list(_split(target, 1, 0)));
    }

    function _hasNoRefuge() private view returns (bool) {
        for (uint256 i; i < ACCOUNTS; ++i) {
            address refuge = _refuge(_account(i));
            bool isAnyOpen = !usdc.isBlacklisted(_account(i)) || !usdc.isBlacklisted(refuge)
                || !usdc.isBlacklisted(_refuge(refuge));
            if (!isAnyOpen) return true;
        }
        return false;
    }

    /// Computes what each account should have paid and received, from the outcomes alone.
    function _model(Bill[] memory bills, bytes memory outcomes) private {
        uint256 platformTotal;
        for (uint256 i; i < bills.length; ++i) {
            if (outcomes[i] != 0x10) continue;
            if (_moved[bills[i].nonce]) ++movedTwice;
            _moved[bills[i].nonce] = true;
            for (uint256 payer_; payer_ < PAYERS; ++payer_) {
                if (_buyer(payer_) == bills[i].from) _signed[payer_] += _value(bills[i]);
            }
            for (uint256 k; k < bills[i].lines.length; ++k) {
                uint256 split = splits[bills[i].lines[k].split];
                uint256 amount = bills[i].lines[k].amount;
                uint256 part = amount * uint48(split) / (uint256(uint48(split >> 48)) + uint48(split));
                platformTotal += part;
                _due[address(uint160(split >> 96))] += amount - part;
            }
        }
        uint256 reward = platformTotal * REWARD / 10_000;
        if (usdc.isBlacklisted(KEEPER)) reward = 0;
        _due[KEEPER] += reward;
        _due[PLATFORM] += platformTotal - reward;
    }

    /// Sums what moved, from the logs. They include the logs of calls that failed inside the batch, but USDC emits its
    /// logs only after everything that can fail.
    function _record(Vm.Log[] memory logs) private {
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] == IFiatToken.Transfer.selector) {
                uint256 value = abi.decode(logs[i].data, (uint256));
                if (address(uint160(uint256(logs[i].topics[2]))) == address(tabSettlement)) pulled += value;
                if (address(uint160(uint256(logs[i].topics[1]))) == address(tabSettlement)) paidOut += value;
            } else if (logs[i].topics[0] == IBatchSettlement.BatchSettled.selector) {
                (,, uint256 providerTotal, uint256 feeTotal,) =
                    abi.decode(logs[i].data, (uint8, uint256, uint256, uint256, bytes));
                eventTotals += providerTotal + feeTotal;
            }
        }
    }
}
