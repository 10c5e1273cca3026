// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {ITabSettlement} from "../interfaces/ITabSettlement.sol";
import {ContractWallet} from "./mocks/Wallets.sol";
import {TabTest} from "./support/TabTest.sol";

/// @notice Any mix of good and bad tabs settles exactly the good ones, and each recipient gets the amount that a model
/// predicts. TabReference returns, logs and moves the same, even if payees are blacklisted.
contract TabMixesTest is TabTest {
    enum Kind {
        GOOD,
        CONTRACT_WALLET,
        USED,
        CANCELLED,
        OLDER_STATE,
        EXPIRED,
        BAD_SIGNATURE,
        ANOTHER_AMOUNT,
        NO_BALANCE,
        BLACKLISTED,
        SAME_PAYER
    }

    uint256 private constant KINDS = 11;
    /// The outcome of each kind, in the order above. A tab of the last kind has the same payer as the tab before
    /// it, and is good if that tab didn't fail.
    bytes private constant EXPECTED = hex"1010202020503030303010";
    uint256 private constant PROVIDERS = 6;

    uint256 private _seed;
    ITabSettlement.Tab[] private _tabs;
    bytes private _lines;
    bytes[] private _signatures;
    bytes private _expected;

    // The model's predictions.
    uint256 private _settledCount;
    bytes private _settledLines;
    uint256 private _platformTotal;
    uint256[PROVIDERS] private _provided;

    function _random(uint256 below) private returns (uint256) {
        _seed = uint256(keccak256(abi.encode(_seed)));
        return _seed % below;
    }

    function _provider(uint256 index) private pure returns (address) {
        return address(uint160(0xB000 + index));
    }

    function _makeSplit() private returns (uint256) {
        address provider = _provider(_random(PROVIDERS));
        uint256 shares = _random(4);
        if (shares == 0) return _split(provider, 19, 1);
        if (shares == 1) return _split(provider, 9, 1);
        if (shares == 2) return _split(provider, 0, 0);
        return _split(provider, _random(1 << 48), _random(1 << 48));
    }

    function _makeBill(uint256 index) private returns (Bill memory bill) {
        bill = _bill(index);
        (bill.sequence, bill.expiry) = (_random(1 << 40), NOW + 1 + _random(1 << 39));
        bill.lines = new Line[](1 + _random(20));
        for (uint256 i; i < bill.lines.length; ++i) {
            bill.lines[i] = Line(_random(splits.length), 1 + _random(1 << (1 + _random(47))));
        }
    }

    function test_fuzz_anyMixSettlesTheGoodOnes(uint256 seed) public {
        _seed = seed;
        delete splits;
        uint256 splitCount = 1 + _random(12);
        for (uint256 i; i < splitCount; ++i) splits.push(_makeSplit());
        uint256 count = 1 + _random(24);
        Bill memory last;
        for (uint256 i; i < count; ++i) {
            Kind kind = Kind(_random(KINDS));
            if (kind == Kind.SAME_PAYER && (i == 0 || last.from.code.length != 0)) kind = Kind.GOOD;
            Bill memory bill = _makeBill(i);
            bytes1 outcome = EXPECTED[uint256(kind)];
            if (kind == Kind.SAME_PAYER) {
                (bill.key, bill.from) = (last.key, last.from);
                if (_expected[i - 1] == 0x30 || _expected[i - 1] == 0x40) outcome = 0x40;
            }
            _expected.push(outcome);
            _add(kind, bill, outcome);
            if (outcome == 0x10) _count(bill);
            last = bill;
        }
        _settleAndCheck();
    }

    /// Blacklists each payee with a probability of one third, and possibly also the splitters in which its money would
    /// wait.
    function _blacklistSome() private {
        for (uint256 i; i < PROVIDERS + 2; ++i) {
            address account = i < PROVIDERS ? _provider(i) : i == PROVIDERS ? PLATFORM : KEEPER;
            uint256 pick = _random(9);
            // Blacklists the account alone, or also its splitter, or also that splitter's splitter.
            for (uint256 depth = pick < 6 ? 0 : pick - 5; depth > 0; --depth) {
                usdc.blacklist(account);
                account = _refuge(account);
            }
        }
    }

    /// Changes the tab and the chain's state as its kind requires, and adds the tab to the batch.
    function _add(Kind kind, Bill memory bill, bytes1 outcome) private {
        if (kind == Kind.CONTRACT_WALLET) bill.from = address(new ContractWallet(vm.addr(bill.key)));
        if (kind == Kind.EXPIRED) bill.expiry = _random(NOW + 1);
        uint256 value = _value(bill);
        // A skipped tab's payer may be blacklisted, and then can't be funded.
        if (outcome != 0x40) usdc.mint(bill.from, kind == Kind.NO_BALANCE ? value - 1 : value);
        if (kind == Kind.CANCELLED) _cancel(bill);
        if (kind == Kind.BLACKLISTED) usdc.blacklist(bill.from);
        if (kind == Kind.USED) {
            _settle(_only(bill));
            usdc.mint(bill.from, value);
        }
        if (kind == Kind.OLDER_STATE) {
            Bill memory newer = _makeBill(0);
            (newer.key, newer.from, newer.nonce) = (bill.key, bill.from, bill.nonce);
            _fund(newer);
            _settle(_only(newer));
        }
        ITabSettlement.Tab memory tab = _packTab(bill);
        _lines = bytes.concat(_lines, _packLines(bill));
        if (kind == Kind.CONTRACT_WALLET) {
            bytes memory signature = _signature(bill);
            (tab.r, tab.vs) = (bytes32(_signatures.length), 0);
            _signatures.push(bytes.concat(signature, signature, signature));
        }
        if (kind == Kind.ANOTHER_AMOUNT) {
            bill.lines[0].amount += 1;
            (tab.r, tab.vs) = _compact(bill.key, _digest(bill, _tabBatch()));
        }
        if (kind == Kind.BAD_SIGNATURE) (tab.r, tab.vs) = _compact(_key(1 << 20), _digest(bill, _tabBatch()));
        _tabs.push(tab);
    }

    function _count(Bill memory bill) private {
        ++_settledCount;
        _settledLines = bytes.concat(
            _settledLines, abi.encodePacked(uint16(bill.lines.length), uint40(bill.sequence)), _packLines(bill)
        );
        for (uint256 i; i < bill.lines.length; ++i) {
            uint256 split = splits[bill.lines[i].split];
            uint256 amount = bill.lines[i].amount;
            uint256 whole = uint256(uint48(split >> 48)) + uint48(split);
            uint256 part = whole == 0 ? 0 : amount * uint48(split) / whole;
            _platformTotal += part;
            _provided[(split >> 96) - 0xB000] += amount - part;
        }
    }

    function _settleAndCheck() private {
        Packed memory packed = Packed(splits, _tabs, _lines, _signatures);
        _compareWithReference(_call(packed), true);
        uint256 state = vm.snapshotState();
        _blacklistSome();
        _compareWithReference(_call(packed), true);
        vm.revertToState(state);
        if (_settledCount == 0) {
            _expectNothingSettled(_expected);
            _settle(packed);
            return;
        }
        uint256[PROVIDERS] memory before;
        uint256 providerTotal;
        for (uint256 i; i < PROVIDERS; ++i) {
            before[i] = usdc.balanceOf(_provider(i));
            providerTotal += _provided[i];
        }
        (uint256 keeperBefore, uint256 platformBefore) = (usdc.balanceOf(KEEPER), usdc.balanceOf(PLATFORM));
        vm.expectEmit(true, true, true, true, address(tabSettlement));
        emit ITabSettlement.TabsSettled(BATCH_ID, PLATFORM, REWARD, splits, _settledLines);
        vm.expectEmit(true, true, true, true, address(tabSettlement));
        emit IBatchSettlement.BatchSettled(
            BATCH_ID, KEEPER, address(usdc), 1, _settledCount, providerTotal, _platformTotal, _expected
        );
        vm.assertEq(_settle(packed), _expected, "outcomes");

        for (uint256 i; i < PROVIDERS; ++i) {
            vm.assertEq(usdc.balanceOf(_provider(i)) - before[i], _provided[i], "a provider's balance");
        }
        uint256 reward = _platformTotal * REWARD / 10_000;
        vm.assertEq(usdc.balanceOf(KEEPER) - keeperBefore, reward, "the keeper's balance");
        vm.assertEq(usdc.balanceOf(PLATFORM) - platformBefore, _platformTotal - reward, "the platform's balance");
        vm.assertEq(usdc.balanceOf(address(tabSettlement)), 0, "the contract's balance");
    }
}
